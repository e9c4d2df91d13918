"""Runs the rows of faults, prints each round and a summary, and keeps the logs of failed rounds."""

import argparse
import asyncio
import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NoReturn

from .ground import Ground
from .rounds import Round, run_round
from .rows import ROW_BY_NAME, ROWS, Row
from .stacks import open_ground_of_kind
from .table import RowResult, as_markdown, print_table, write_results

OUTPUT = Path("build/chaos.json")
FOLDER = Path("build/chaos")
_LOCK_SECONDS = 300.0
"""The time after which the lock is released at the end of a row, so that other programs on the machine get it."""


def main() -> int:
    asked = _parse_arguments()
    if asked.show:
        print(as_markdown(OUTPUT))
        return 0
    signal.signal(signal.SIGTERM, _interrupt_on_signal)
    rows = [ROW_BY_NAME[name] for name in asked.rows] or list(ROWS)
    results: list[RowResult] = []
    try:
        asyncio.run(_run_rows(rows, asked, results))
    except KeyboardInterrupt:
        print_with_time("interrupted")
    print_table(results)
    return 0 if len(results) == len(rows) and all(result.is_good for result in results) else 1


def print_with_time(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)


async def _run_rows(rows: Sequence[Row], asked: argparse.Namespace, results: list[RowResult]) -> None:
    for kind, group in groupby(rows, key=lambda row: row.stack):
        waiting = list(group)
        while waiting:
            with _hold_lock(asked.lock):
                print_with_time(f"a platform of the kind {kind} comes up")
                started = time.monotonic()
                async with open_ground_of_kind(kind, FOLDER, asked.seed, print_with_time) as ground:
                    print_with_time(f"up and joined after {time.monotonic() - started:.0f} s")
                    while waiting:
                        results.append(RowResult(waiting.pop(0)))
                        await _run_row(ground, results, asked)
                        others_turn = asked.lock and time.monotonic() - started > _LOCK_SECONDS
                        if others_turn or not results[-1].is_good:
                            break


async def _run_row(ground: Ground, results: Sequence[RowResult], asked: argparse.Namespace) -> None:
    """Runs the rounds of the row of the last result. Writes the results to the file after each round."""
    result, row = results[-1], results[-1].row
    print_with_time(f"{row.name}: {row.what}")
    while sum(one.times for one in result.rounds) < asked.rounds:
        seed = asked.round_seed or f"{asked.seed}/{row.name}/{len(result.rounds) + 1}"
        done = await run_round(ground, row, seed)
        result.rounds.append(done)
        write_results(OUTPUT, [result], _machine_facts())
        _tell_round(row, result, done)
        if not done.is_good:
            _keep_logs(ground, row, done)
            break


def _tell_round(row: Row, result: RowResult, done: Round) -> None:
    verdict = "good" if done.is_good else "FAILED"
    print_with_time(
        f"{row.name} {sum(one.times for one in result.rounds)}: {verdict}: {done.what}; back after "
        f"{done.broken_seconds:.1f} s, right after {done.seconds:.1f} s more; no planner for {done.gap_seconds:.1f} s; "
        f"{done.answered} requests answered; claimed {done.claims}, of others {done.moves}"
    )
    for finding in done.findings:
        print_with_time(f"    {finding.kind} ({finding.count}): {finding.what}")
    if done.trouble:
        print_with_time(f"    trouble: {done.trouble}")
    if not done.is_good:
        print_with_time(f"    again: make chaos ROWS={row.name} ROUND_SEED={done.seed}")


def _keep_logs(ground: Ground, row: Row, done: Round) -> None:
    kept = FOLDER / "failed" / done.seed.replace("/", "-")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(ground.stack.folder / "logs", kept)
    (kept / "findings.txt").write_text("\n".join([row.what, done.what, done.trouble, *map(str, done.findings)]) + "\n")
    print_with_time(f"    logs: {kept}")


@contextmanager
def _hold_lock(file: Path | None) -> Iterator[None]:
    """Holds the lock file while a platform runs, so that only one such program runs on the machine. None: no lock."""
    if file is None:
        yield
        return
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[], choices=[[], *ROW_BY_NAME], help="all of them when none")
    parser.add_argument("--rounds", type=int, default=20, help="of each row")
    parser.add_argument("--seed", default="1", help="of every choice and moment")
    parser.add_argument("--round-seed", default="", help="of one round, as a failed one names it")
    parser.add_argument("--show", action="store_true", help="only print, as Markdown, what was written down")
    parser.add_argument("--lock", type=Path, default=None, help="a file that is locked while rows run")
    return parser.parse_args()


def _machine_facts() -> dict[str, str]:
    git = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip() or "unknown",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        "load": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "Python": platform.python_version(),
    }


def _interrupt_on_signal(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(f"signal {number}")


if __name__ == "__main__":
    sys.exit(main())
