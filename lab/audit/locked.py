"""Writes requirements.txt, with the hash of each file that an installation needs, and a bill of materials (SBOM).

Both are made from uv.lock, which `make setup` writes from the pins in pyproject.toml; see docs/adr/0003. Neither names
the index that the files came from.

python lab/audit/locked.py requirements   writes requirements.txt
python lab/audit/locked.py sbom           writes build/sbom.json
python lab/audit/locked.py check          ends with exit code 1 if requirements.txt differs from the lock
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import audit
from packaging.requirements import Requirement
from packaging.tags import Tag, sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

REQUIREMENTS: Final = audit.ROOT / "requirements.txt"
SBOM: Final = audit.ROOT / "build" / "sbom.json"
LOCK: Final = audit.ROOT / "uv.lock"
HEAD: Final = (
    "# What Spillway runs on, by version and by the hash of each file. `make requirements` writes this file, and\n"
    "# tests/audit compares it with what is locked. How to install from it: docs/operations.md.\n"
)
OUR_LICENCE: Final = "Apache-2.0"

File = tuple[str, str]
"""The name of a file and its hash, as `sha256:…`."""


def export_locked(*options: str) -> str:
    """Returns the output of `uv export` for the packages that Spillway needs, without the development tools."""
    uv = os.environ.get("UV") or _uv_path()  # `uv run` sets this variable.
    command = [uv, "export", "--frozen", "--no-dev", "--quiet", *options]
    return subprocess.run(command, cwd=audit.ROOT, capture_output=True, text=True, check=True).stdout


def _uv_path() -> str:
    found = subprocess.run([audit.ROOT / "tools" / "ensure-uv"], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


# ── Requirements ────────────────────────────────────────────────────────────────────────────────────────────────────


def requirements_text() -> str:
    return HEAD + export_locked("--no-emit-workspace", "--no-header", "--no-annotate")


def hashes_by_requirement(text: str) -> dict[str, frozenset[str]]:
    """Returns the hashes of a requirements file, by requirement with its version and marker."""
    logical = text.replace("\\\n", " ").splitlines()
    words = [line.split(" --hash=") for line in logical if line.strip() and not line.startswith("#")]
    return {one.strip(): frozenset(word.strip() for word in hashes) for one, *hashes in words}


def files_by_package() -> dict[str, list[File]]:
    """Returns all files that the lock names, by package. The source distribution is one of them."""
    found: dict[str, list[File]] = {}
    for package in audit.read_toml(LOCK)["package"]:
        entries = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        found[package["name"]] = [(_file_name(one), one["hash"]) for one in entries if "hash" in one]
    return found


def _file_name(entry: Mapping[str, Any]) -> str:
    return unquote(PurePosixPath(urlsplit(entry.get("url") or entry["path"]).path).name)


def chosen_file(files: Sequence[File], tags: Sequence[Tag]) -> File | None:
    """Returns the file that an installer takes: the wheel with the best of these tags, else the source distribution.

    tags: the tags that this machine supports, the best one first.
    """
    rank = {tag: place for place, tag in enumerate(tags)}
    fitting = [
        (min(rank[tag] for tag in known), one)
        for one in files
        if one[0].endswith(".whl") and (known := parse_wheel_filename(one[0])[3] & rank.keys())
    ]
    sources = [one for one in files if not one[0].endswith(".whl")]
    return min(fitting)[1] if fitting else next(iter(sources), None)


def requirement_troubles(
    committed: str, locked: str, files: Mapping[str, Sequence[File]], tags: Sequence[Tag] = tuple(sys_tags())
) -> Iterator[str]:
    """Yields the differences between the committed requirements and the lock, and files without a committed hash.

    An index may have more files of a version than another, so hashes of other machines' files are not compared.
    """
    there, wanted = hashes_by_requirement(committed), hashes_by_requirement(locked)
    yield from (f"{one}: locked, and not in {REQUIREMENTS.name}" for one in sorted(wanted.keys() - there.keys()))
    yield from (f"{one}: in {REQUIREMENTS.name}, and not locked" for one in sorted(there.keys() - wanted.keys()))
    for one in sorted(there.keys() & wanted.keys()):
        requirement = Requirement(one)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        file = chosen_file(files.get(canonicalize_name(requirement.name), ()), tags)
        if file is None:
            yield f"{one}: no file of it fits this machine"
        elif file[1] not in there[one]:
            yield f"{one}: {file[0]} would be installed here, and {REQUIREMENTS.name} does not have its hash"


# ── Bill of materials ───────────────────────────────────────────────────────────────────────────────────────────────


def bill_of_materials() -> dict[str, Any]:
    """Returns a CycloneDX 1.5 document: our own parts, the packages that they need, and the dependencies between them.

    A file is named without the address of an index. Licences come from the installed packages, or from LIST of
    audit.py. A package for other machines, which is not installed here, has no licence.
    """
    bill: dict[str, Any] = json.loads(export_locked("--format", "cyclonedx1.5", "--preview-features", "sbom-export"))
    installed, by_hand = audit.installed_by_name(), audit.read_toml(audit.LIST)["licences"]["by_hand"]
    for component in bill["components"]:
        for reference in component.get("externalReferences", ()):
            reference["url"] = _file_name(reference)
        name = canonicalize_name(component["name"])
        if "purl" not in component:
            component["licenses"] = [{"license": {"id": OUR_LICENCE}}]
        elif name in installed:
            component["licenses"] = [{"license": {"name": by_hand.get(name) or audit.licence_of(installed[name])}}]
    return bill


def main(what: str) -> int:
    if what == "requirements":
        REQUIREMENTS.write_text(requirements_text())
    elif what == "sbom":
        SBOM.parent.mkdir(exist_ok=True)
        SBOM.write_text(json.dumps(bill_of_materials(), indent=2) + "\n")
        print(f"sbom: {SBOM.relative_to(audit.ROOT)}")
    else:
        found = list(requirement_troubles(REQUIREMENTS.read_text(), requirements_text(), files_by_package()))
        for trouble in found:
            print(f"requirements: {trouble}: see docs/operations.md, Install by hashes")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
