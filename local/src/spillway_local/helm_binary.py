"""Builds helm, a Go program, into the cache once, for `make helm` and the tests on real control planes."""

import time
from pathlib import Path
from typing import Final

from spillway_local.kube_binary import find_go
from spillway_local.tools import build_once, cache_folder, print_message, run_tool

HELM_VERSION: Final = "v3.22.0"
HELM_PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"


def helm_path() -> Path:
    """Returns the path of the program, built or not."""
    return cache_folder() / "helm" / HELM_VERSION / "helm"


def ensure_helm() -> Path:
    return build_once(helm_path(), _build_helm)


def _build_helm(program: Path) -> None:
    started = time.monotonic()
    print_message(f"building {program}: once, some minutes")
    install = (str(find_go()), "install", "-trimpath", "-ldflags", "-s -w", f"{HELM_PACKAGE}@{HELM_VERSION}")
    unfinished = program.parent / "unfinished"
    environment = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOBIN": str(unfinished)}
    run_tool(("nice", "-n", "10", *install), Path("/"), environment)
    (unfinished / "helm").replace(program)
    unfinished.rmdir()
    print_message(f"built {program} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    print(ensure_helm())
