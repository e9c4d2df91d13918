"""`make fuzz`: distributes inputs to processes, monitors them, and reports the results (docs/security.md)."""

import argparse
import ast
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from spillway_fuzz.target import Target, inputs_by_target, random_for_input
from spillway_fuzz.work import PLACE_BYTES, Found, Slice, limit_process_memory, try_input

ROOT: Final = Path(__file__).parents[3]
EVERYTHING: Final = "spillway_fuzz.everything"
SLICE_INPUTS_MAX: Final = 5_000
"""The most inputs of a slice. The limit lets processes end at about the same time, and keeps memory of one target from
counting for another."""
INPUT_SECONDS_MAX: Final = 60.0
"""Seconds after which a running input counts as hanging. Its process is then ended."""
LOOK_SECONDS: Final = 0.2


def main() -> int:
    options = _parse_options()
    limit_process_memory()  # This process makes failed inputs again.
    targets = {target.name: target for target in import_module(options.targets).targets()}
    chosen = [target for target in targets.values() if options.only in target.name]
    if options.kept:
        return _rerun_kept_inputs(targets, options.kept)
    if options.replay is not None:
        return _replay_input(targets[options.only], options)
    slices = _slices_of_processes(chosen, options.inputs, options.jobs)
    found = Run(options, slices).run_all_slices()
    _save_failed_inputs(found, targets, options)
    _print_results(found, options)
    return 1 if any(one.defects for one in found.values()) else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes at one time")
    parser.add_argument("--only", default="", help="targets whose name has this in it; with --replay the whole name")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="run this one input, and show it")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz", help="folder of what failed, and counts")
    parser.add_argument("--kept", type=Path, nargs="+", default=(), help="run the inputs in these files")
    parser.add_argument("--targets", default=EVERYTHING, help=argparse.SUPPRESS)
    parser.add_argument("--hangs-after", type=float, default=INPUT_SECONDS_MAX, help=argparse.SUPPRESS)
    return parser.parse_args()


def _slices_of_processes(targets: Sequence[Target], inputs: int, jobs: int) -> list[list[Slice]]:
    """Returns the slices of each process: at most SLICE_INPUTS_MAX inputs of one target in a row, each input once."""
    found = [
        Slice(name, first, min(SLICE_INPUTS_MAX, count - first))
        for name, count in inputs_by_target(targets, inputs).items()
        for first in range(0, count, SLICE_INPUTS_MAX)
    ]
    return [found[index::jobs] for index in range(jobs)]


class Run:
    """Runs processes in parallel. If one dies or hangs, notes its input, and another process goes on after it."""

    def __init__(self, options: argparse.Namespace, slices: Sequence[list[Slice]]) -> None:
        self._options = options
        self._slices = [list(one) for one in slices if one]
        self._lines: SimpleQueue[Found] = SimpleQueue()
        self._inputs = sum(one.count for share in slices for one in share)
        self._found: dict[str, Found] = {}
        self._broken = ""
        """Why a process ended before its first input; then there is no result."""

    def run_all_slices(self) -> dict[str, Found]:
        """Returns the results by target, in the order of the targets' first slices."""
        self._options.out.mkdir(parents=True, exist_ok=True)
        threads = [
            threading.Thread(target=self._run_processes, args=(index, one), daemon=True)
            for index, one in enumerate(self._slices)
        ]
        for thread in threads:
            thread.start()
        started, said = time.monotonic(), 0.0
        while any(thread.is_alive() for thread in threads) or not self._lines.empty():
            time.sleep(LOOK_SECONDS)
            while not self._lines.empty():
                one = self._lines.get()
                self._found.setdefault(one.target, Found(one.target)).add_results(one)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                self._print_progress(said - started)
        if self._broken:
            sys.exit(f"fuzz: {self._broken}")
        return self._found

    def _print_progress(self, seconds: float) -> None:
        inputs = sum(one.input_count for one in self._found.values())
        defects = sum(one.defects for one in self._found.values())
        print(
            f"{seconds:6.0f} s  {inputs:>9,} of {self._inputs:,} inputs  {defects} defects", file=sys.stderr, flush=True
        )

    def _run_processes(self, index: int, slices: list[Slice]) -> None:
        """Runs one process after the other until all slices are done."""
        file = self._options.out / f"number-{os.getpid()}-{index}"
        try:
            while slices:
                file.write_bytes(bytes(PLACE_BYTES))
                slices = self._run_process(file, slices)
        finally:
            file.unlink(missing_ok=True)

    def _run_process(self, file: Path, slices: list[Slice]) -> list[Slice]:
        """Runs one process. Returns the slices that are left after its end."""
        options, done = self._options, 0
        command = [sys.executable, "-m", "spillway_fuzz.work", options.targets, str(options.seed), str(file)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([[one.target, one.first, one.count] for one in slices]))
            process.stdin.close()
            words: list[str] = []
            listening = threading.Thread(target=_collect_stderr_lines, args=(process.stderr, words), daemon=True)
            watching = threading.Thread(target=self._end_hanging_process, args=(process, file), daemon=True)
            listening.start()
            watching.start()
            for line in process.stdout:
                if line.startswith("{"):
                    self._lines.put(Found(**json.loads(line)))
                    done += 1
            process.wait()
            listening.join()
        if process.returncode == 0:
            return []
        return self._note_ended_process(
            file, slices, done, f"the process ended: {process.returncode}\n{''.join(words)[-6_000:]}"
        )

    def _end_hanging_process(self, process: "subprocess.Popen[str]", file: Path) -> None:
        """Ends a process whose input does not change for too long. Its stack trace shows where it hangs."""
        seen, since = b"", time.monotonic()
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            now = file.read_bytes() if file.exists() else b""
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > self._options.hangs_after:
                process.send_signal(signal.SIGABRT)
                since = time.monotonic()

    def _note_ended_process(self, file: Path, slices: list[Slice], done: int, why: str) -> list[Slice]:
        """Notes the running input as a defect. Returns the slices after it."""
        place = file.read_bytes()
        begun, index, number = (int.from_bytes(place[at : at + 8], "little") for at in (0, 8, 16))
        if not begun:
            self._broken = why
            return []
        if index < done:  # The process ended between two slices or before the first, so no input is the cause.
            index, number = done, slices[done].first
        one = slices[index]
        before = number - one.first
        self._lines.put(Found(one.target, refused=before, defects=1, told=[(number, why)]))
        rest = Slice(one.target, number + 1, one.count - before - 1)
        return [*([rest] if rest.count else []), *slices[index + 1 :]]


def _collect_stderr_lines(stream: Iterable[str] | None, words: list[str]) -> None:
    for line in stream or ():
        words.append(line)
        del words[:-200]


# ── Results ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _save_failed_inputs(found: dict[str, Found], targets: dict[str, Target], options: argparse.Namespace) -> None:
    """Saves each failed input in the format of the regression corpus (found/), and all counts."""
    for one in found.values():
        for number, why in one.told:
            path = options.out / f"{slug(one.target)}-{options.seed}-{number}.txt"
            _save_input(targets[one.target], options.seed, number, path)
            print(f"\n{one.target}, input {number}: {why.rstrip()}")
            print(f"  kept in {path}")
            print(f"  again: make fuzz ONLY={one.target!r} SEED={options.seed} REPLAY={number}")
    counts = {
        name: {"inputs": one.input_count, "accepted": one.accepted, "defects": one.defects}
        for name, one in found.items()
    }
    (options.out / f"counts-{options.seed}.json").write_text(json.dumps(counts, indent=1))


def _save_input(target: Target, seed: int, number: int, path: Path) -> None:
    """Saves an input by a process of its own, since making it may have ended the process before."""
    child = os.fork()
    if not child:
        try:
            path.write_text(f"{target.name}\n{target.make(random_for_input(seed, target.name, number))!r}\n")
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _print_results(found: dict[str, Found], options: argparse.Namespace) -> None:
    print(f"\nseed {options.seed}")
    counts = f"{'inputs':>10} {'accepted':>9} {'refused':>9}"
    print(f"{'what is fuzzed':34} {counts} {'slowest':>10} {'grown':>8} defects")
    for one in found.values():
        _print_row(one)
    total = Found("all")
    for one in found.values():
        total.add_results(one)
    _print_row(total)


def _print_row(one: Found) -> None:
    slowest, grown = f"{one.slowest_seconds * 1000:.1f} ms", f"{one.grown_bytes / 2**20:.0f} MiB"
    counts = f"{one.input_count:>10,} {one.accepted:>9,} {one.refused:>9,}"
    print(f"{one.target:34} {counts} {slowest:>10} {grown:>8} {one.defects:>7}")


def _replay_input(target: Target, options: argparse.Namespace) -> int:
    given = target.make(random_for_input(options.seed, target.name, options.replay))
    print(f"{given!r}"[:20_000])
    accepted, trouble = try_input(target, given)
    target.close()
    print(trouble or ("accepted" if accepted else "refused"))
    return 1 if trouble else 0


def _rerun_kept_inputs(targets: dict[str, Target], files: Sequence[Path]) -> int:
    """Runs kept inputs again. Prints each one before its run, since it may end the process."""
    failed = 0
    for path in files:
        print(path.name, end=": ", flush=True)
        name, given = read_kept_input(path)
        accepted, trouble = try_input(targets[name], given)
        print(trouble or ("accepted" if accepted else "refused"), flush=True)
        failed += bool(trouble)
    for target in targets.values():
        target.close()
    return 1 if failed else 0


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def read_kept_input(path: Path) -> tuple[str, object]:
    """Returns target and input of a kept file."""
    name, given = path.read_text().split("\n", 1)
    return name, ast.literal_eval(given.strip())
