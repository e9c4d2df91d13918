"""Checks the packages that we depend on (`make audit`). Only the last check, pip-audit, needs a network.

python audit.py     checks pins, licences and reasons; then runs pip-audit if a vulnerability service answers
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
LIST: Final = Path(__file__).with_name("dependencies.toml")
PIP_AUDIT: Final = "pip-audit==2.10.1"
SERVICES: Final = ("pypi", "osv")
SERVICE_SECONDS: Final = 300
FIRST: Final = "certifi"
NOT_ASKED: Final = 2
"""The exit code when no vulnerability service could be asked, so that nothing is known."""

Ask = Callable[[str, Sequence[str], Path], list[dict[str, Any]]]
"""Takes a service, packages and the file to list them in. Returns pip-audit's answer for each package."""


def read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def read_projects() -> list[dict[str, Any]]:
    """Returns the contents of the pyproject.toml of the workspace and of each of its members."""
    top = read_toml(ROOT / "pyproject.toml")
    members = sorted(path for glob in top["tool"]["uv"]["workspace"]["members"] for path in ROOT.glob(glob))
    return [top, *(read_toml(path / "pyproject.toml") for path in members if (path / "pyproject.toml").exists())]


def direct_requirements_by_name() -> dict[str, list[Requirement]]:
    """Returns the requirements that our own parts declare, by package, without requirements of our own parts."""
    found: dict[str, list[Requirement]] = {}
    projects = read_projects()
    ours = {canonicalize_name(part["project"]["name"]) for part in projects}
    for part in projects:
        groups = part.get("dependency-groups", {}).values()
        optional = part["project"].get("optional-dependencies", {}).values()
        for text in (
            *part["project"].get("dependencies", ()),
            *(one for group in (*groups, *optional) for one in group),
        ):
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            if name not in ours:
                found.setdefault(name, []).append(requirement)
    return found


def pinned_version_by_name() -> dict[str, str]:
    """Returns the only version that may be installed, by package."""
    lines = (Requirement(text) for text in read_toml(ROOT / "pyproject.toml")["tool"]["uv"]["constraint-dependencies"])
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in lines}


def installed_by_name() -> dict[str, Distribution]:
    """Returns the packages installed in this environment, by name, without our own parts."""
    ours = {canonicalize_name(part["project"]["name"]) for part in read_projects()}
    found = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    return {name: one for name, one in found.items() if name not in ours}


def licence_of(one: Distribution) -> str:
    """Returns the licence in the package's own metadata; empty if the metadata names none."""
    metadata: Any = one.metadata
    told = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if line.startswith("License ::")
    ]
    return str(metadata.get("License-Expression") or " AND ".join(told) or (metadata.get("License") or "")[:60])


def find_troubles(
    known: Mapping[str, Any],
    asked: Mapping[str, list[Requirement]],
    pinned: Mapping[str, str],
    there: Mapping[str, Distribution],
) -> Iterator[str]:
    """Yields a text for each fault.

    known: the content of LIST.
    asked, pinned, there: the requirements, the pinned versions and the installed packages, by name.
    """
    yield from _reason_troubles(known["direct"], asked)
    yield from _pin_troubles(asked, pinned, there, known["elsewhere"])
    yield from _licence_troubles(there, known)
    yield from _unmet_requirement_troubles(there)


def _reason_troubles(reasons: Mapping[str, str], asked: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(asked.keys() - reasons.keys()):
        yield f"{name}: depended on without a reason in {LIST.name}"
    for name in sorted(reasons.keys() - asked.keys()):
        yield f"{name}: in {LIST.name}, and nothing depends on it"
    yield from (f"{name}: no reason" for name, reason in reasons.items() if not reason.strip())


def _pin_troubles(
    asked: Mapping[str, list[Requirement]],
    pinned: Mapping[str, str],
    there: Mapping[str, Distribution],
    elsewhere: Mapping[str, str],
) -> Iterator[str]:
    """Yields a text for each fault of the pins. elsewhere: the pins for other machines, each with its reason."""
    for name, requirements in sorted(asked.items()):
        yield from (f"{name}: from {one.url}: expected from an index" for one in requirements if one.url)
    for name, one in sorted(there.items()):
        if name not in pinned:
            yield f"{name} {one.version}: installed, and no constraint pins it"
        elif pinned[name] != one.version:
            yield f"{name} {one.version}: installed, pinned to {pinned[name]}"
    for name in sorted(pinned.keys() - there.keys() - elsewhere.keys()):
        yield f"{name}: pinned, and not installed"


def _licence_troubles(there: Mapping[str, Distribution], known: Mapping[str, Any]) -> Iterator[str]:
    allowed, by_hand = set(known["licences"]["allowed"]), known["licences"]["by_hand"]
    for name, one in sorted(there.items()):
        told = by_hand.get(name) or licence_of(one)
        terms = {term.strip(" ()") for term in re.split(r" AND | OR |; ", told)}
        if not told or not terms <= allowed:
            yield f"{name} {one.version}: licence {told or 'not told'!r}: expected some of {LIST.name}"


def _unmet_requirement_troubles(there: Mapping[str, Distribution]) -> Iterator[str]:
    for name, one in sorted(there.items()):
        for text in one.requires or ():
            needs = Requirement(text)
            if needs.marker is not None and not needs.marker.evaluate({"extra": ""}):
                continue
            found = there.get(canonicalize_name(needs.name))
            if found is None or not needs.specifier.contains(found.version, prereleases=True):
                yield f"{name}: needs {needs}, there is {found.version if found is not None else 'none'}"


# ── Known vulnerabilities ───────────────────────────────────────────────────────────────────────────────────────────


def check_vulnerabilities(out: Path, ask: Ask) -> int:
    """Returns the exit code: 0 for no known vulnerability, 1 for some, NOT_ASKED if no service knows every package.

    A service is first asked about one package only. If it does not answer or does not know it, the next one is asked.
    """
    packages = [f"{name}=={one.version}" for name, one in sorted(installed_by_name().items())]
    out.mkdir(parents=True, exist_ok=True)
    for service in SERVICES:
        trouble, found = "", list[dict[str, Any]]()
        for asked in ([one for one in packages if one.startswith(f"{FIRST}==")], packages):
            found = ask(service, asked, out / "requirements.txt")
            unknown = [one.get("name", "") for one in found if "skip_reason" in one]
            trouble = f"does not know {len(unknown)} of {len(asked)} packages: {', '.join(unknown)}" if unknown else ""
            trouble = trouble or ("" if len(found) == len(asked) else "does not answer")
            if trouble:
                print(f"audit: {service}: {trouble}")
                break
        if not trouble:
            return _print_vulnerabilities(service, found)
    print("audit: NOT DONE: no service of known vulnerabilities could be asked of all packages from here")
    return NOT_ASKED


def _print_vulnerabilities(service: str, found: Sequence[Mapping[str, Any]]) -> int:
    wanting = [one for one in found if one.get("vulns")]
    for one in wanting:
        for vuln in one["vulns"]:
            fixed = ", ".join(vuln["fix_versions"]) or "nothing yet"
            print(f"audit: {one['name']} {one['version']}: {vuln['id']}, fixed in {fixed}")
    if not wanting:
        print(f"audit: {service}: nothing known of {len(found)} packages")
    return 1 if wanting else 0


def ask_pip_audit(service: str, packages: Sequence[str], listed: Path) -> list[dict[str, Any]]:
    """Returns pip-audit's entries for the packages, from one service; empty if the service does not answer."""
    listed.write_text("".join(f"{one}\n" for one in packages))
    uv = os.environ.get("UV", "uv")  # `uv run` sets this variable.
    how = ("--no-deps", "--disable-pip", "-s", service, "-f", "json")
    command = [uv, "tool", "run", PIP_AUDIT, "-r", str(listed), *how]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SERVICE_SECONDS)
        found: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return []
    return found


def main() -> int:
    found = list(
        find_troubles(read_toml(LIST), direct_requirements_by_name(), pinned_version_by_name(), installed_by_name())
    )
    for trouble in found:
        print(f"audit: {trouble}")
    if found:
        return 1
    there, asked = installed_by_name(), direct_requirements_by_name()
    print(f"audit: {len(there)} packages as pinned, {len(asked)} of them asked for with a reason, licences as allowed")
    return check_vulnerabilities(ROOT / "build" / "audit", ask_pip_audit)


if __name__ == "__main__":
    sys.exit(main())
