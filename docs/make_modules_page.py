"""Makes docs/modules.md: every package and module of our source with the first paragraph of its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PARTS: Final = (
    "libs/spillway/src/spillway",
    "services/snapshot/src/snapshot",
    "services/planner/src/planner",
    "services/propagator/src/propagator",
    "services/hpa/src/hpa",
    "services/vk-bridge/src/vk_bridge",
    "services/descheduler/src/descheduler",
    "cli/src/spillway_cli",
    "local/src/spillway_local",
    "libs/sim/src/sim",
)
GENERATED: Final = "libs/spillway/src/spillway/v1"
HEAD: Final = """# Modules

Made by `make docs` from the docstrings of packages and modules.
[ARCHITECTURE](../ARCHITECTURE.md) tells how they fit together.
"""


def page_text() -> str:
    """Returns the whole page in Markdown, without a line end."""
    return "\n".join([HEAD, *(line for part in PARTS for line in _package_lines(ROOT / part))]).rstrip("\n")


def _package_lines(folder: Path) -> Iterator[str]:
    """Yields a package with its modules, then the packages in it. The order is that of the names."""
    where = folder.relative_to(ROOT).as_posix()
    if where == GENERATED:
        return
    depth = "#" * min(4, 2 + len(folder.relative_to(ROOT).parts) - len(_part_that_contains(where).split("/")))
    yield f"{depth} {where}\n\n{first_docstring_paragraph(folder / '__init__.py')}\n"
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    if modules:
        yield "| module | |\n|---|---|"
        yield from (
            f"| `{path.name}` | {first_docstring_paragraph(path).replace('|', chr(92) + '|')} |" for path in modules
        )
        yield ""
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from _package_lines(package)


def _part_that_contains(where: str) -> str:
    return next(part for part in PARTS if where == part or where.startswith(part + "/"))


def first_docstring_paragraph(path: Path) -> str:
    """Returns the first paragraph of a module's docstring on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())
