"""The command of the suite: plays the runs, prints a table, and writes build/replay.json."""

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NoReturn

import structlog

from .naive import NODES, SUMS
from .scenario import OURS, OURS_KILLED, Run, play_run
from .trace import FOLDER, Trace, made_up_trace, read_trace, trace_folder
from .workloads import BETWEEN, PLAIN

PLANNERS = (OURS, OURS_KILLED, NODES, SUMS)
PRESSURES = (0.5, 1.0)
RUNS_A_PROCESS = 8
"""The runs of one process. Then the process ends, which frees its memory, and another goes on."""
ROOT = Path(__file__).resolve().parents[3]
BUILD = Path("build/replay.json")


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # Else the order of sets of strings differs in each process.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    arguments = _parse_arguments()
    folder = trace_folder(ROOT)
    if folder is None and not arguments.made_up:
        print(f"make replay: skipped: no {FOLDER} in any folder above {ROOT}, and the clusters are cut from it")
        return 0
    trace = made_up_trace() if arguments.made_up or folder is None else read_trace(folder)
    first, _, end = arguments.seeds.partition(":")
    runs = [
        Run(planner, workloads, seed, pressure, arguments.delay, arguments.plain, arguments.joining)
        for workloads in map(int, arguments.bursts.split(","))
        for seed in range(int(first), int(end))
        for pressure in PRESSURES
        for planner in arguments.planners
    ]
    found = list(play_runs(runs, trace, arguments.jobs, _play_and_time))
    print(table_of_runs(found))
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps([_run_as_json(*entry) for entry in found], indent=1) + "\n")
    return 0


Played = tuple[Run, Counter[str], float]
"""(run, figures, CPU seconds)"""


def play_runs(runs: Sequence[Run], trace: Trace, jobs: int, one: Callable[[Run, Trace], Played]) -> Iterator[Played]:
    """Yields each run's result when it is done. An error in one run ends all, as does BrokenProcessPool."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, _silence_logs, max_tasks_per_child=RUNS_A_PROCESS) as pool:
        try:
            for number, done in enumerate(as_completed([pool.submit(one, run, trace) for run in runs]), 1):
                run, _, seconds = done.result()
                print(f"{number} of {len(runs)}: {run}, {seconds:.1f} s of CPU", file=sys.stderr, flush=True)
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():  # Else runs under way would go on for minutes.
                process.terminate()
            raise


def _play_and_time(run: Run, trace: Trace) -> Played:
    started = time.process_time()
    figures = play_run(run, trace)
    return run, figures, time.process_time() - started


def _silence_logs() -> None:
    structlog.configure(processors=[_drop_log_entry])
    logging.disable()


def _drop_log_entry(_: object, _level: str, _entry: object) -> NoReturn:
    raise structlog.DropEvent


def _run_as_json(run: Run, figures: Counter[str], seconds: float) -> dict[str, Any]:
    asked = {name: getattr(run, name) for name in ("planner", "workloads", "seed", "pressure", "delay", "joining")}
    return {"run": asked, "figures": dict(sorted(figures.items())), "cpu_seconds": round(seconds, 1)}


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def table_of_runs(found: Sequence[Played]) -> str:
    """Returns a Markdown table with a row for each burst size and planner, summed over seeds and pressures."""
    sums: dict[tuple[int, str], Counter[str]] = {}
    for run, figures, _ in found:
        sums.setdefault((run.workloads, run.planner), Counter()).update(figures | Counter({"runs": 1}))
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for (workloads, planner), figures in sorted(sums.items(), key=lambda one: (one[0][0], PLANNERS.index(one[0][1]))):
        lines.append(f"| {workloads} × {figures['runs']} | {planner} | " + " | ".join(_row_cells(figures)) + " |")
    return "\n".join(lines)


COLUMNS = (
    "workloads × runs",
    "planner",
    "unplaceable, plain",
    "unplaceable, between pods",
    "double-booked",
    "refused though placeable",
    "waiting at rest though placeable",
    "moves / least",
    "lost or doubled",
)


def _row_cells(figures: Counter[str]) -> Iterator[str]:
    for kind in (PLAIN, BETWEEN):
        yield _share_text(figures[f"unplaceable: {kind}"], figures[f"handed: {kind}"])
    yield str(sum(count for name, count in figures.items() if name.startswith("double-booked")))
    judged = f"{figures['refusals judged']} of {figures['requests refused']} refusals judged"
    for name, whole in (
        ("refused though placeable", f"{figures['refused replicas judged']} ({judged})"),
        ("waiting though placeable", str(figures["waiting at rest"])),
    ):
        ways = ("as asked", "as told") if name.startswith("refused") else ("as told",)
        told = "".join(f"; {way} {_text_by_kind(figures, f'{name} {way}')}" for way in ways)
        yield f"{_text_by_kind(figures, name)} of {whole}{told}"
    moves, least = (
        sum(figures[f"{what}: {cause}"] for cause in ("Scale", "Policy", "Apply")) for what in ("moves", "least moves")
    )
    yield f"{moves} / {least}"
    yield f"{figures['workloads lost or doubled']} of {figures['workloads taken']}"


def _text_by_kind(figures: Counter[str], name: str) -> str:
    return f"{figures[f'{name}: {PLAIN}']} + {figures[f'{name}: {BETWEEN}']}"


def _share_text(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.2f} %)" if part else "")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("--seeds", default="1:3", help="first:end, the end not included")
    parser.add_argument("--bursts", default="1,10,100,1000", help="workloads that arrive together")
    parser.add_argument(
        "--planners", type=_parse_planners, default=PLANNERS, help="some of them: " + "/".join(PLANNERS)
    )
    parser.add_argument("--joining", type=float, default=0.0, help="share of the nodes that are free later only")
    parser.add_argument("--delay", type=float, default=0.5, help="seconds at the most until a record is read")
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time")
    parser.add_argument("--plain", action="store_true", help="members with the plain scheduler: needs no oracle")
    parser.add_argument("--made-up", action="store_true", help="made-up nodes and pods: needs no trace")
    parser.add_argument("--out", type=Path, default=BUILD, help="where the figures go")
    return parser.parse_args()


def _parse_planners(text: str) -> tuple[str, ...]:
    names = tuple(text.split("/"))
    if unknown := set(names) - set(PLANNERS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {'/'.join(PLANNERS)}")
    return names
