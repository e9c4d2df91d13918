"""The chart rendered by helm with values that turn everything on: written by `make helm`, checked by tests."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from spillway_local.helm_binary import ensure_helm
from spillway_local.tools import files_digest

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "spillway"
VALUES: Final = ROOT / "tests" / "helm" / "values.yaml"
RENDERED: Final = ROOT / "tests" / "helm" / "rendered.yaml"
RELEASE: Final = "spillway"
NAMESPACE: Final = "platform"
KUBERNETES: Final = "1.36.1"


def first_line() -> str:
    """Names what was rendered, so that it can be told without helm whether it is current."""
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    return f"# Written by make helm from the chart and values {files_digest([*files, VALUES])}.\n"


def run_helm(*arguments: str) -> str:
    """What helm prints. AssertionError with its words when it fails."""
    done = subprocess.run((str(ensure_helm()), *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def render_chart(*arguments: str) -> str:
    place = ("--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--values", str(VALUES))
    return run_helm("template", RELEASE, str(CHART), *place, *arguments)


if __name__ == "__main__":
    print(run_helm("lint", "--strict", "--values", str(VALUES), str(CHART)))
    RENDERED.write_text(first_line() + render_chart())
    sys.exit(0)
