"""Builds the oracle, a Go program over the Kubernetes scheduler's packages, into the cache by its content."""

import time
from pathlib import Path

from spillway_local.kube_binary import find_go
from spillway_local.tools import build_once, cache_folder, files_digest, print_message, run_tool

MODULE_FOLDER = Path(__file__).resolve().parents[1] / "scheduler"


def oracle_path() -> Path:
    """Returns the path of the oracle program for this checkout's sources, built or not."""
    files = sorted(path for path in MODULE_FOLDER.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    return cache_folder() / "oracle" / files_digest(files) / "oracle"


def is_oracle_built() -> bool:
    return oracle_path().is_file()


def ensure_oracle() -> Path:
    return build_once(oracle_path(), _build_oracle)


def _build_oracle(program: Path) -> None:
    started = time.monotonic()
    print_message(
        f"building {program} (the scheduler of Kubernetes): seconds after `make kube`, 3 to 8 minutes without"
    )
    unfinished = program.with_suffix(".unfinished")
    build = ("build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(unfinished), ".")
    run_tool(("nice", "-n", "10", str(find_go()), *build), MODULE_FOLDER, {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"})
    unfinished.replace(program)
    size_mebibytes = program.stat().st_size / 2**20
    print_message(f"built {program} ({size_mebibytes:.0f} MiB) in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    print(ensure_oracle())
