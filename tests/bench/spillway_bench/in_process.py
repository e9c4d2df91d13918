"""What is measured of the planner's core by itself, in a process of its own: see planning.py."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .figures import Measured, Unmeasured

SECONDS_MAX = 900.0
FIGURES = (
    "plan_known_shape_p50_ms",
    "plan_known_shape_p99_ms",
    "plan_new_shape_p50_ms",
    "plan_new_shape_p99_ms",
    "plan_new_spread_shape_p99_ms",
    "plans_per_second",
    "node_change_1000_shapes_ms",
    "node_change_1000_shapes_p99_ms",
    "node_change_100_spread_shapes_ms",
    "planner_memory_mb",
    "fleet_refresh_cpu_s",
)


def measure_in_process(small: bool) -> Mapping[str, Measured]:
    """Runs planning.py; Unmeasured when it fails."""
    command = [sys.executable, "-m", "spillway_bench.planning", *(["--quick"] if small else [])]
    folder = Path(__file__).parent.parent
    print("the planner's core on a big fleet, in a process of its own", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise Unmeasured(f"planning.py ended with {done.returncode}: {done.stderr[-200:]}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {entry["name"]: Measured(entry["value"], entry["baseline"], entry["floor"]) for entry in found}
