"""Runs seeds of the simulation. Reads one request as JSON from each input line, until the input ends.

Each seed runs in a process that is forked from this one, so nothing is imported again. A seed finds no caches of an
earlier seed, so it ends the same in any order. A mutant replaces the code of the imported functions.
"""

import gc
import inspect
import itertools
import json
import marshal
import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

SIMULATION = Path(__file__).parent.parent / "simulation"
ROOT = SIMULATION.parent.parent

Change = list[tuple[FunctionType, CodeType]]
"""Functions and their new code."""


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # simulate.py requires the same.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    sys.path.insert(0, str(SIMULATION))
    import_module("spillway_simulation.run")
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        _print_line({"pool": seed_pool(*asked["pool"])} if "pool" in asked else run_asked_seeds(asked, functions))
    return 0


def run_asked_seeds(asked: dict[str, Any], functions: list[FunctionType]) -> dict[str, bool]:
    """Prints the result of each seed. Ends after the first failure, unless all seeds are requested.

    file, text: the mutated file and its text. over: True at the end; False if the mutant could not be applied.
    """
    change: Change | None = []
    if "file" in asked:
        change = changed_functions(ROOT / asked["file"], asked["text"], functions)
    for seed in asked["seeds"] if change is not None else ():
        said = run_in_fork(seed, asked["cpu_seconds"], change or [], to_the_end=asked["every"])
        _print_line(said)
        if (said["failures"] or not said.get("ended", True)) and not asked["every"]:
            break
    return {"over": change is not None}


def seed_pool(first: int, count: int) -> list[int]:
    """Returns all kept seeds and `count` others. Leaves out large fleets: one takes as long as thirty others."""
    seeds, script = import_module("spillway_simulation.seeds"), import_module("spillway_simulation.script")
    others = (
        seed for seed in itertools.count(first) if not script.drawn_count_by_kind(seeds.script_of(seed))["fleets"]
    )
    return [*seeds.KEPT, *itertools.islice(others, count)]


def changed_functions(path: Path, text: str, functions: list[FunctionType]) -> Change | None:
    """Returns the new code for functions of the imported module; None if more than functions differ or none was
    found."""
    before, after = (compile(one, str(path), "exec", dont_inherit=True) for one in (path.read_text(), text))
    theirs, ours = _code_by_place(before), _code_by_place(after)
    if _import_time_parts(before) != _import_time_parts(after):
        return None
    here = [one for one in functions if one.__code__.co_filename == str(path)]
    found: Change = []
    for place, code in theirs.items():
        new = ours.get(place)
        if (
            new is None
            or new.co_freevars != code.co_freevars
            or (_is_class_body(code) and _import_time_parts(new) != _import_time_parts(code))
        ):
            return None
        if marshal.dumps(_without_line_numbers(new)) != marshal.dumps(_without_line_numbers(code)):
            line = code.co_firstlineno
            found += [
                (one, new)
                for one in here
                if (one.__code__.co_qualname, one.__code__.co_firstlineno) == (place[0], line)
            ]
    return found or None


def _is_class_body(code: CodeType) -> bool:
    """Returns whether the code is the body of a class."""
    return not code.co_flags & inspect.CO_OPTIMIZED


def _import_time_parts(code: CodeType) -> tuple[object, ...]:
    """Returns the parts of the code that run at import, without the code of the functions in it."""
    consts = tuple(repr(one) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, code.co_names, consts


def _code_by_place(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Returns all functions of a module by their name and their number among those of that name."""
    found: dict[tuple[str, int], CodeType] = {}
    times = defaultdict[str, int](int)
    for one in _nested_code(code):
        found[one.co_qualname, times[one.co_qualname]] = one
        times[one.co_qualname] += 1
    return found


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _nested_code(one)


def _without_line_numbers(code: CodeType) -> CodeType:
    """Returns the code without its line numbers."""
    inner = tuple(_without_line_numbers(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=inner)


def run_in_fork(seed: int, cpu_seconds: int, change: Change, *, to_the_end: bool) -> dict[str, Any]:
    """Returns the result of the seed, or that it did not end. to_the_end: False to stop at the first broken
    sentence."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run_in_child(seed, change, writer, cpu_seconds, to_the_end=to_the_end)
    os.close(writer)
    with os.fdopen(reader) as line:
        text = line.read()
    os.waitpid(child, 0)
    ended: dict[str, Any] = json.loads(text) if text else {"seed": seed, "failures": [], "ended": False}
    return ended


def _run_in_child(seed: int, change: Change, writer: int, cpu_seconds: int, *, to_the_end: bool) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))

    def end_with_result(said: dict[str, Any]) -> NoReturn:
        with os.fdopen(writer, "w") as line:
            json.dump(said, line)
        os._exit(0)

    def end_at_violation(_: object, sentence: str) -> NoReturn:
        end_with_result({"seed": seed, "failures": [sentence]})

    try:
        if not to_the_end:
            import_module("spillway_simulation.oracle").Oracle.note_violation = end_at_violation
        end_with_result(run_mutated_seed(seed, change))
    finally:
        os._exit(1)


def run_mutated_seed(seed: int, change: Change) -> dict[str, Any]:
    """Runs a seed. failures: broken sentences. digest: of the whole trace. met: by mutant, the number of meetings."""
    simulation, meeting = import_module("spillway_simulation.run"), import_module("spillway_mutants.meeting")
    for function, code in change:
        function.__code__ = code
    try:
        outcome = simulation.run_seed(seed)
    except Exception as error:
        return {"seed": seed, "failures": [f"{type(error).__name__}: {error}"]}
    return {
        "seed": seed,
        "failures": list(outcome.failures),
        "digest": outcome.digest,
        "records": outcome.records + outcome.writes,
        "met": meeting.meetings_by_mutant(),
    }


def _print_line(line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
