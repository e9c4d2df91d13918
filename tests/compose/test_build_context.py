"""What compose/Dockerfile copies is sent to the engine: .dockerignore is read as Docker reads it, without an engine."""

import re
import tomllib
from pathlib import PurePosixPath

import pytest
from docker.utils.build import exclude_paths

from .stand_ins import ROOT

DOCKERFILE = "compose/Dockerfile"
SENT = frozenset(exclude_paths(str(ROOT), (ROOT / ".dockerignore").read_text().splitlines(), DOCKERFILE))
"""Every file and folder of the build context, by its path below the checkout."""
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
MEMBERS = sorted(
    str(found.parent.relative_to(ROOT)) for one in WORKSPACE for found in ROOT.glob(f"{one}/pyproject.toml")
)


def sources_of_copies() -> list[str]:
    """The sources of each COPY from the build context; those of `--from` come out of another image."""
    lines = re.findall(r"^COPY +(?!--from)(.+)$", (ROOT / DOCKERFILE).read_text(), re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


@pytest.mark.parametrize("source", sources_of_copies())
def test_what_the_image_copies_is_in_the_build_context(source: str) -> None:
    assert source in SENT, f"COPY {source}: .dockerignore leaves it out"


@pytest.mark.parametrize("member", MEMBERS)
def test_every_workspace_member_is_copied_with_all_its_sources(member: str) -> None:
    assert any(PurePosixPath(member).is_relative_to(source) for source in sources_of_copies()), (
        f"{DOCKERFILE} has no COPY of it"
    )
    ours = {str(file.relative_to(ROOT)) for file in (ROOT / member / "src").rglob("*.py") if "_pb2" not in file.name}
    assert {f"{member}/pyproject.toml", *ours} <= SENT


def test_what_is_not_of_the_image_stays_out_of_the_build_context() -> None:
    assert not {part for path in SENT for part in PurePosixPath(path).parts} & {".venv", "run", "tests", "__pycache__"}
