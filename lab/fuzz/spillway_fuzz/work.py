"""Runs slices of inputs in one process, and notes the results, the slowest input and the memory of each slice.

The number of the running input is in a file that this process and run.py have mapped. So run.py knows the input that
crashed or blocked this process.
"""

import faulthandler
import json
import mmap
import resource
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from spillway_fuzz.target import Input, Target, random_for_input

INPUT_CPU_SECONDS_MAX: Final = 5.0
"""The most CPU seconds of one input. More is a defect."""
INPUT_BYTES_MAX: Final = 256 * 2**20
"""The most bytes by which one input may raise the peak memory of the process. More is a defect."""
PROCESS_BYTES_MAX: Final = 2 * 2**30
"""The most bytes that the process may allocate beyond its memory at the start."""
PLACE_BYTES: Final = 24
"""The size of three numbers in the mapped file: 1 once an input has begun, the slice, and the input."""
DEFECTS_KEPT_MAX: Final = 20
"""The most defects of a slice that are described. All defects are counted."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Inputs first to first + count - 1 of a target."""

    target: str
    first: int
    count: int


@dataclass(slots=True)
class Found:
    """The results of a slice, or of a whole target.

    slowest_seconds, slowest_number: the CPU time and the number of the slowest input.
    grown_bytes: the growth of the peak memory. told: (number, description) of the first defects.
    """

    target: str
    accepted: int = 0
    refused: int = 0
    defects: int = 0
    slowest_seconds: float = 0.0
    slowest_number: int = -1
    grown_bytes: int = 0
    told: list[tuple[int, str]] = field(default_factory=list)

    @property
    def input_count(self) -> int:
        return self.accepted + self.refused + self.defects

    def add_results(self, other: "Found") -> None:
        self.accepted += other.accepted
        self.refused += other.refused
        self.defects += other.defects
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)
        self.told += other.told
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_number = other.slowest_seconds, other.slowest_number


def main() -> int:
    """Runs the slices that stdin has as JSON, and prints their results.

    Arguments: the module of the targets, the seed, and the file for the number of the running input.
    """
    module, seed, file = sys.argv[1:]
    faulthandler.enable()
    slices = [Slice(*one) for one in json.load(sys.stdin)]
    with Path(file).open("r+b") as opened:
        place = mmap.mmap(opened.fileno(), PLACE_BYTES)
        targets = {target.name: target for target in import_module(module).targets()}
        limit_process_memory()
        for index, one in enumerate(slices):
            found = _run_slice(targets[one.target], int(seed), one, index, place)
            print(json.dumps(asdict(found)), flush=True)
        for target in targets.values():
            target.close()
    return 0


def try_input(target: Target, given: Input) -> tuple[bool, str]:
    """Runs one input. Returns (True if it was accepted, the traceback of an unexpected exception or an empty text)."""
    try:
        return target.run(given), ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return False, traceback.format_exc(limit=-12)


def peak_memory_bytes() -> int:
    """Returns the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_process_memory() -> None:
    """Limits the memory of this process, so that a large input ends this process and no other one."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    bound = int(sizes["VmData"].split()[0]) * 1024 + PROCESS_BYTES_MAX
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, most))


def _run_slice(target: Target, seed: int, one: Slice, index: int, place: Any) -> Found:
    found, began = Found(one.target), peak_memory_bytes()
    for number in range(one.first, one.first + one.count):
        place[:] = b"".join(one.to_bytes(8, "little") for one in (1, index, number))
        given = target.make(random_for_input(seed, target.name, number))
        peak, started = peak_memory_bytes(), time.process_time()
        accepted, trouble = try_input(target, given)
        seconds, grown = time.process_time() - started, peak_memory_bytes() - peak
        if seconds > found.slowest_seconds:
            found.slowest_seconds, found.slowest_number = seconds, number
        trouble = trouble or _exceeded_limit_text(seconds, grown)
        if trouble:
            found.defects += 1
            found.told += [(number, trouble)] if len(found.told) < DEFECTS_KEPT_MAX else []
        elif accepted:
            found.accepted += 1
        else:
            found.refused += 1
    found.grown_bytes = peak_memory_bytes() - began
    return found


def _exceeded_limit_text(seconds: float, grown: int) -> str:
    if seconds > INPUT_CPU_SECONDS_MAX:
        return f"it took {seconds:.1f} s of CPU: expected at most {INPUT_CPU_SECONDS_MAX:g}"
    if grown > INPUT_BYTES_MAX:
        return f"the most memory ever had grew by {grown >> 20} MiB: expected at most {INPUT_BYTES_MAX >> 20}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
