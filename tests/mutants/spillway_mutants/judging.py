"""What a run of tests or seeds says of a mutant."""

import re

from .ledger import BROKEN, GOING, KILLED, SURVIVES, TIMEOUT
from .workbench import Ran, last_line

PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
"""Exit codes of pytest."""
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\](?= - |$))?)", re.MULTILINE)
_FAILED_SEED = re.compile(r"^seed (\d+) failed: (.*)$", re.MULTILINE)


class Unjudged(Exception):
    """The run says nothing of the mutant; the text says why."""


def failed_tests(output: str) -> list[str]:
    """In the order of pytest's summary."""
    return list(dict.fromkeys(_FAILED_TEST.findall(output)))


def judged_by_tests(ran: Ran) -> tuple[str, str]:
    """Result, and the test that noticed it. Raises Unjudged."""
    if ran.code is None:
        return TIMEOUT, last_line(ran.output)
    if ran.code == PASSED:
        return SURVIVES, ""
    failed = failed_tests(ran.output)
    if ran.code in (FAILED, INTERRUPTED) and failed:
        return KILLED, failed[0]
    raise Unjudged(f"pytest ended with {ran.code}: {last_line(ran.output)}")


def judged_by_seeds(ran: Ran, done: int, wanted: int) -> tuple[str, str]:
    """Result, and the first seed that noticed it, or how many did not. done: seeds with this run's. Raises Unjudged."""
    failed = _FAILED_SEED.search(ran.output)
    if failed:
        return KILLED, f"seed {failed[1]}: {failed[2][:100]}"
    if ran.code is None:
        return TIMEOUT, "a seed that does not end"
    if ran.code != PASSED:
        raise Unjudged(f"the simulation ended with {ran.code}: {last_line(ran.output)}")
    return (SURVIVES if done >= wanted else GOING), f"{done} seeds"


def kind_of(killer: str) -> str:
    """Of what kind a test is: unit (properties among them), path, or contract."""
    for kind in ("path", "contract", "simulation"):
        if killer.startswith(f"tests/{kind}/"):
            return kind
    return "unit" if killer else ""


def is_final(result: str) -> bool:
    """Whether there is nothing more to be found out."""
    return result in (KILLED, TIMEOUT, SURVIVES, BROKEN)
