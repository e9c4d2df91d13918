"""Runs the measurements of single parts in a process each: planning, batching, scaling and strangers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .figures import Measured, Unmeasured

SECONDS_MAX = 900.0
PLANNING = (
    "plan_known_shape_p50_ms",
    "plan_known_shape_p99_ms",
    "plan_new_shape_p50_ms",
    "plan_new_shape_p99_ms",
    "plan_new_spread_shape_p50_ms",
    "plan_new_spread_shape_p99_ms",
    "plans_per_second",
    "node_change_1000_shapes_ms",
    "node_change_1000_shapes_p99_ms",
    "node_change_100_spread_shapes_ms",
    "planner_memory_mb",
    "fleet_refresh_cpu_s",
    "explain_p50_ms",
    "explain_p99_ms",
    "explain_step_max_ms",
)
SCALING = ("hpa_decisions_per_second", "hpa_records_per_second", "hpa_memory_mb")
BATCHING = ("batched_plan_us", "batched_plan_unlike_us", "batched_plan_100_clusters_us")
STRANGERS = (
    "front_call_p50_ms",
    "flooded_call_p99_ms",
    "flooded_by_tokens_p99_ms",
    "flooded_mutual_tls_p99_ms",
)
FIGURES_BY_MODULE: Mapping[str, tuple[str, ...]] = {
    "planning": PLANNING,
    "batching": BATCHING,
    "scaling": SCALING,
    "strangers": STRANGERS,
}


def measure_in_subprocess(module: str, small: bool) -> Mapping[str, Measured]:
    """Runs a module and returns its figures. Raises Unmeasured when it fails. small: True for few samples."""
    command = [sys.executable, "-m", f"spillway_bench.{module}", *(["--quick"] if small else [])]
    folder = Path(__file__).parent.parent
    print(f"{module}: by itself, in a process of its own", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise Unmeasured(f"{module}.py ended with {done.returncode}: {done.stderr[-200:]}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {entry["name"]: Measured(entry["value"], entry["baseline"], entry["floor"]) for entry in found}
