"""Moves the wall clock of each service by libfaketime, which does not change the monotonic clock."""

import email.utils
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from spillway_local.tools import MissingTool

SERVICES = tuple(f"{kind}-{number}" for kind in ("snapshot", "propagator", "planner") for number in (1, 2))
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
)
_ADVICE = "libfaketime is not installed: apt-get install libfaketime (Debian); the clock-jumps row needs it"


def clock_file(folder: Path, service: str) -> Path:
    return folder / f"clock-{service}"


def set_clock(folder: Path, service: str, ahead_seconds: int) -> None:
    """Sets a service's clock ahead by writing its file in one step, because the service may read it at any moment."""
    file = clock_file(folder, service)
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{ahead_seconds:+d}\n")
    fresh.replace(file)


def clock_environment_by_service(folder: Path) -> Mapping[str, Mapping[str, str]]:
    library = next((path for path in _LIBRARIES if Path(path).exists()), "")
    if not library:
        raise MissingTool(_ADVICE)
    folder.mkdir(parents=True, exist_ok=True)
    for service in SERVICES:
        set_clock(folder, service, 0)
    return {
        service: {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(clock_file(folder, service)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        for service in SERVICES
    }


def clock_offset_seconds(url: str) -> float:
    """Returns the seconds by which a service's wall clock is ahead of ours, from the Date of its answer."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        told = email.utils.parsedate_to_datetime(answer.headers["Date"])
    return told.timestamp() - time.time()
