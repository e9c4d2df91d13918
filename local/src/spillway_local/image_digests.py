"""Pins each image of compose/ by its digest, because tags are moved. `make pin-images` writes compose/.env."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spillway_local.tools import ToolFailed, run_tool

HEADER: Final = (
    "# Written by `make pin-images`: what each tag was then. Compose reads it; with a digest the tag counts no more."
)
_NAMED: Final = re.compile(
    r"^(?:\s*image:|FROM) +(?P<image>\S+?)\$\{(?P<variable>[A-Z]+_DIGEST)(?::-)?\}", re.MULTILINE
)
_PINNED: Final = re.compile(r"^# (?P<image>\S+)\n(?P<variable>[A-Z]+_DIGEST)=@(?P<digest>\S*)$", re.MULTILINE)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Run = Callable[..., str]
"""Runs an engine's command line with these arguments, and returns its output."""


@dataclass(frozen=True, slots=True)
class Pin:
    image: str
    digest: str


class NoDigest(Exception):
    """An image has no digest that a registry knows."""


def named_images(folder: Path) -> dict[str, str]:
    """Returns the tagged images in all files of compose/, by the variable that each file uses for it.

    Raises ValueError if a variable has two images.
    """
    found: dict[str, str] = {}
    for file in (*sorted(folder.glob("*.yaml")), folder / "Dockerfile"):
        for match in _NAMED.finditer(file.read_text()):
            variable, image = match["variable"], match["image"]
            if found.setdefault(variable, image) != image:
                raise ValueError(f"{file.name}: {variable}: {image!r}: expected {found[variable]!r}, as elsewhere")
    return found


def read_pins(text: str) -> dict[str, Pin]:
    return {match["variable"]: Pin(match["image"], match["digest"]) for match in _PINNED.finditer(text)}


def pins_file_text(pins: Mapping[str, Pin]) -> str:
    lines = [f"# {pin.image}\n{variable}=@{pin.digest}" for variable, pin in sorted(pins.items())]
    return "\n".join([HEADER, *lines]) + "\n"


def pin_troubles(named: Mapping[str, str], pins: Mapping[str, Pin]) -> list[str]:
    """Returns a line for each image that is not pinned, or whose pin is for another image."""
    found = [
        f"{variable}: {pins[variable].image}: no image is named by it" for variable in sorted(set(pins) - set(named))
    ]
    for variable, image in sorted(named.items()):
        pin = pins.get(variable)
        if pin is None:
            found.append(f"{variable}: {image}: no digest")
        elif pin.image != image:
            found.append(f"{variable}: {image}: the digest is of {pin.image}, which is what would run")
        elif not _DIGEST.fullmatch(pin.digest):
            found.append(f"{variable}: {pin.digest!r}: expected sha256: and 64 hexadecimal digits")
    return found


def pull_image_digest(image: str, run: Run) -> str:
    """Pulls an image and returns its digest.

    Raises NoDigest if the engine did not get it from a registry, and ToolFailed if it cannot be pulled.
    """
    run("pull", "--quiet", image)
    repository = re.sub(r":[^:/]+$", "", image)
    known: list[str] = json.loads(run("image", "inspect", "--format", "{{json .RepoDigests}}", image)) or []
    for entry in known:
        of, _, digest = entry.partition("@")
        if of == repository and _DIGEST.fullmatch(digest):
            return digest
    raise NoDigest(f"{image}: the engine knows {known}: expected {repository}@sha256:…")


def _run_docker(*arguments: str) -> str:
    return run_tool(("docker", *arguments), Path("/"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway_local.image_digests", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("compose"), help="with compose.yaml, its overlays and the Dockerfile"
    )
    parser.add_argument(
        "--check", action="store_true", help="only say what is not pinned, or as something else: exit code 1"
    )
    asked = parser.parse_args()
    named, file = named_images(asked.folder), asked.folder / ".env"
    try:
        if not asked.check:
            file.write_text(
                pins_file_text(
                    {variable: Pin(image, pull_image_digest(image, _run_docker)) for variable, image in named.items()}
                )
            )
    except (NoDigest, ToolFailed, FileNotFoundError) as error:
        sys.exit(f"spillway: nothing is written: {error}")
    found = pin_troubles(named, read_pins(file.read_text() if file.exists() else ""))
    print("\n".join(found) if found else f"{file}: {len(named)} images are named by their digests")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
