"""The command of the suite: plays all scenes, prints tables of their curves, and writes build/scaling.json."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from .arrivals import FOLDER, find_trace_folder
from .curves import (
    BUSY_MINUTES,
    OUR_WAYS,
    WAYS,
    WHOLE_DAY,
    Point,
    Run,
    compare_curves,
    cost_curve,
    play_run,
    runs_of_all_settings,
    scenes_by_name,
)
from .trial import Outcome, Scene

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path("build/scaling.json")


def main() -> int:
    arguments = _parse_arguments()
    first, _, end = arguments.seeds.partition(":")
    seeds = range(int(first), int(end))
    folder = find_trace_folder(ROOT)
    if folder is None:
        print(f"make scaling: without the genai trace: no {FOLDER} in any folder above {ROOT}", file=sys.stderr)
    minutes = WHOLE_DAY if arguments.whole_day else BUSY_MINUTES
    by_seed = {seed: scenes_by_name(folder, arguments.hours, minutes, seed) for seed in seeds}
    known = list(by_seed[seeds[0]])
    names = [name for name in known if name == arguments.scene] or [name for name in known if arguments.scene in name]
    outcomes = list(_play_all_runs(runs_of_all_settings(names, seeds), by_seed, arguments.jobs))
    print(table_text(outcomes, names))
    arguments.out.parent.mkdir(exist_ok=True)
    entries = [{"run": asdict(run), "outcome": asdict(outcome)} for run, outcome in outcomes]
    arguments.out.write_text(json.dumps(entries, indent=1) + "\n")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1:4", help="first:end")
    parser.add_argument("--hours", type=int, default=6, help="of each made-up load")
    parser.add_argument("--whole-day", action="store_true", help="all of the trace, instead of its busiest six hours")
    parser.add_argument("--scene", default="", help="the one of this name, or those whose name has it in it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=BUILD)
    return parser.parse_args()


_SCENES: dict[int, dict[str, Scene]] = {}
"""The scenes by seed and name. Child processes get them by fork, because a load is a function and cannot be sent."""


def _play_all_runs(
    asked: Sequence[Run], by_seed: dict[int, dict[str, Scene]], jobs: int
) -> Iterator[tuple[Run, Outcome]]:
    _SCENES.update(by_seed)
    with get_context("fork").Pool(jobs) as pool:
        for number, entry in enumerate(pool.imap_unordered(_run_with_outcome, asked, chunksize=4), 1):
            if number % 50 == 0:
                print(f"{number} of {len(asked)}", file=sys.stderr, flush=True)
            yield entry


def _run_with_outcome(run: Run) -> tuple[Run, Outcome]:
    return run, play_run(run, _SCENES[run.seed][run.scene])


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def table_text(outcomes: Sequence[tuple[Run, Outcome]], names: Sequence[str]) -> str:
    lines = [
        "| load | beside | setting: late min, core-hours, scalings | way | at equal cost | as late at most | saved |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, way, own in product(names, WAYS, OUR_WAYS):
        for one in compare_curves(cost_curve(outcomes, name, own), cost_curve(outcomes, name, way)):
            saved = "–" if one.saved_share is None else f"{100 * one.saved_share:.0f} %"
            cells = (
                name,
                way,
                point_text(one.theirs),
                own,
                point_text(one.at_equal_cost),
                point_text(one.at_equal_lateness),
                saved,
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def point_text(point: Point | None) -> str:
    if point is None:
        return "none"
    setting = "/".join(f"{number:g}" for number in point.setting)
    return f"{setting}: {point.late_minutes:.1f}, {point.core_hours:.1f}, {point.changes}"
