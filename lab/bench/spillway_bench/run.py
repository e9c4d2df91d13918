"""Runs the measurements one after another and writes their figures. If one fails, the others still count."""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from spillway.rpc.client import PlannerClient
from spillway_local.stack import Stack

from .applying import measure_applies, measure_batches, measure_burst
from .asking import measure_calls_with_frozen_cluster, measure_capacity_calls, measure_node_changes
from .collecting import measure_big_cluster
from .figures import KIND_BY_NAME, KINDS, LARGE_GOALS, Figure, Measured, Unmeasured
from .freeing import measure_freed_capacity
from .from_log import FIGURES as FROM_LOG
from .from_log import measure_from_log
from .in_process import FIGURES_BY_MODULE, measure_in_subprocess
from .lending import FIGURES as LENDING
from .lending import measure_lending
from .machine import facts
from .rig import FULL, LARGE, QUICK, Rig, Sizes, new_stack
from .scaling_from_log import FIGURES as SCALING_FROM_LOG
from .scaling_from_log import measure_scaling_from_log
from .takeovers import measure_collector_takeover, measure_planner_takeover

OUTPUT = Path("build/bench.json")
FOLDER = Path("build/bench")
TOTAL_SECONDS = 510.0
"""The longest time of all measurements together, without the start and stop of the platform."""
_REASON_CHARACTERS_MAX = 300
_WIDTH = 150

Found = Mapping[str, Measured]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A function that measures the figures `names` within `seconds`."""

    measure: Callable[[Rig], Awaitable[Found]]
    names: tuple[str, ...]
    seconds: float


STACKS = (
    (FROM_LOG, "from-log", measure_from_log),
    (SCALING_FROM_LOG, "scaling-from-log", measure_scaling_from_log),
    (LENDING, "lending", measure_lending),
)
"""The measurements with a stack of their own: (figures, folder, function)."""
MEASUREMENTS = (
    Measurement(
        measure_big_cluster,
        (
            "collector_list_s",
            "collector_list_from_claim_s",
            "collector_memory_mb",
            "collector_memory_peak_mb",
            "planner_process_memory_mb",
        ),
        200,
    ),
    Measurement(measure_capacity_calls, ("capacity_call_p50_ms", "capacity_call_p99_ms"), 40),
    Measurement(measure_calls_with_frozen_cluster, ("capacity_one_frozen_p50_ms", "capacity_one_frozen_p99_ms"), 150),
    Measurement(
        measure_node_changes,
        ("node_change_visible_p50_ms", "node_change_visible_p99_ms", "node_change_poll_p50_ms"),
        150,
    ),
    # This one comes before the applies, because its replicas need most of a node.
    Measurement(measure_freed_capacity, ("freed_to_placed_p50_ms", "freed_to_placed_p99_ms"), 120),
    Measurement(measure_applies, ("apply_p50_ms", "apply_p99_ms"), 80),
    Measurement(measure_burst, ("apply_burst_per_s",), 60),
    Measurement(measure_batches, ("durable_plans_per_second", "durable_plans_alone_per_second"), 120),
    Measurement(measure_planner_takeover, ("planner_takeover_s",), 120),
    Measurement(measure_collector_takeover, ("collector_takeover_s",), 150),
)
assert {
    *(name for names in FIGURES_BY_MODULE.values() for name in names),
    *(name for names, _, _ in STACKS for name in names),
    *(name for measurement in MEASUREMENTS for name in measurement.names),
} == set(KIND_BY_NAME)


def main() -> int:
    asked = _parse_arguments()
    signal.signal(signal.SIGTERM, _exit_on_signal)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    wanted = [entry for entry in MEASUREMENTS if not asked.only or set(asked.only) & set(entry.names)]
    known = facts()
    sizes = QUICK if asked.quick else LARGE if asked.large else FULL
    figures = []
    for module, names in FIGURES_BY_MODULE.items():  # These come first, while no other part of ours runs.
        if not asked.only or set(asked.only) & set(names):
            figures += run_separate_measurement(names, partial(measure_in_subprocess, module, sizes.in_process_small))
    for names, folder, measure in STACKS:
        if not asked.only or set(asked.only) & set(names):
            figures += run_separate_measurement(
                names, partial(measure, asked.folder / folder, sizes, _make_timed_say())
            )
    figures += measure_on_new_platform(wanted, sizes, asked.folder) if wanted else []
    if asked.large:
        figures = [with_goal_of_large(figure) for figure in figures]
    if asked.only:
        figures = [figure for figure in figures if figure.kind.name in asked.only]
    _show_figures(
        console, known | ({"sizes": "--quick: a smoke test, no figures to keep"} if asked.quick else {}), figures
    )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")
    console.print(f"written to {OUTPUT}")
    return 1 if any(figure.measured is None for figure in figures) else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lab/bench/bench.py", description=__doc__)
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--large", action="store_true", help="the big cluster has 5,000 nodes and 100,000 pods")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the platform's data and logs")
    return parser.parse_args()


def run_separate_measurement(names: Sequence[str], measure: Callable[[], Found]) -> list[Figure]:
    """Returns the figures of a measurement that needs no shared platform. After an error they carry its text."""
    try:
        found = measure()
    except Exception as error:
        first = _first_error(error)
        found = first.found if isinstance(first, Unmeasured) else {}
        told = f"{type(first).__name__}: {first}"[-_REASON_CHARACTERS_MAX:]
        return [Figure(KIND_BY_NAME[name], found.get(name), "" if name in found else told) for name in names]
    return [Figure(KIND_BY_NAME[name], found[name]) for name in names]


def _first_error(error: BaseException) -> BaseException:
    """Returns the first error inside an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def with_goal_of_large(figure: Figure) -> Figure:
    goal = LARGE_GOALS.get(figure.kind.name)
    return figure if goal is None else replace(figure, kind=replace(figure.kind, goal=goal))


def measure_on_new_platform(wanted: Sequence[Measurement], sizes: Sizes, folder: Path) -> list[Figure]:
    """Starts a platform, measures on it, and stops it in any case. Returns the figures."""
    say = _make_timed_say()
    stack = new_stack(folder, say)
    try:
        stack.stop_and_delete_data()
        stack.start()
        return asyncio.run(_run_measurements(wanted, stack, sizes, say))
    except Exception as error:
        return [
            figure
            for entry in wanted
            for figure in _failed_figures(entry, f"the platform did not start: {error!r}", say)
        ]
    finally:
        say("the platform stops")
        stack.stop()


async def _run_measurements(
    wanted: Sequence[Measurement], stack: Stack, sizes: Sizes, say: Callable[[str], None]
) -> list[Figure]:
    figures: list[Figure] = []
    deadline = time.monotonic() + TOTAL_SECONDS
    addresses = stack.addresses()
    async with PlannerClient(addresses.planners) as client:
        rig = Rig(stack, addresses, sizes, client, say)
        # The clusters join in the first measurement; every other one needs them.
        for entry in (MEASUREMENTS[0], *(entry for entry in wanted if entry is not MEASUREMENTS[0])):
            seconds = min(entry.seconds, deadline - time.monotonic())
            figures.extend(await _run_measurement(entry, rig, seconds))
    return figures


async def _run_measurement(entry: Measurement, rig: Rig, seconds: float) -> list[Figure]:
    if seconds <= 0:
        return _failed_figures(entry, f"no time was left of {TOTAL_SECONDS:.0f} s", rig.say)
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            found = await entry.measure(rig)
    except TimeoutError:
        return _failed_figures(entry, f"not done within {seconds:.0f} s", rig.say)
    except Exception as error:
        return _failed_figures(entry, f"{type(error).__name__}: {error}", rig.say)
    rig.say(f"{', '.join(found)}: measured in {time.monotonic() - started:.0f} s")
    return [Figure(KIND_BY_NAME[name], found[name]) for name in entry.names]


def _make_timed_say() -> Callable[[str], None]:
    """Returns a function that prints progress with the seconds since its creation."""
    started = time.monotonic()

    def print_with_time(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    return print_with_time


def _failed_figures(entry: Measurement, why: str, say: Callable[[str], None]) -> list[Figure]:
    say(f"{', '.join(entry.names)}: FAILED: {why}")
    return [Figure(KIND_BY_NAME[name], None, why[:_REASON_CHARACTERS_MAX]) for name in entry.names]


def _show_figures(console: Console, known: Mapping[str, str], figures: Sequence[Figure]) -> None:
    machine = Table("machine", "", title="Spillway: make bench", title_justify="left")
    for name, value in known.items():
        machine.add_row(name, value)
    console.print(machine)
    table = Table("figure", "value", "unit", "goal", "", "baseline", "ratio", "to floor", "the baseline is")
    for column in (1, 3, 5, 6, 7):
        table.columns[column].justify = "right"
    for figure in figures:
        kind, entry = figure.kind, figure.as_json()
        shown = {"met": "[green]met[/]", "missed": "[red]missed[/]", "failed": "[bold red]failed[/]"}
        verdict = shown.get(figure.verdict, figure.verdict)
        goal = "" if kind.goal is None else f"{'≥' if kind.at_least else '≤'} {kind.goal:g}"
        numbers = [
            "–" if entry.get(name) is None else f"{entry[name]:g}"
            for name in ("value", "baseline", "ratio", "floor_ratio")
        ]
        table.add_row(kind.name, numbers[0], kind.unit, goal, verdict, *numbers[1:], figure.trouble or kind.baseline)
    console.print(table)


def _exit_on_signal(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
