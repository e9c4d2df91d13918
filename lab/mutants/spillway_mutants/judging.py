"""What a run of tests or seeds says of a mutant."""

import re

from .ledger import BROKEN, KILLED, SURVIVES, TIMEOUT
from .workbench import Ran, SeedRan, last_line

PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
"""Exit codes of pytest."""
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\](?= - |$))?)", re.MULTILINE)


class Unjudged(Exception):
    """The run says nothing of the mutant; the text says why."""


def failed_tests(output: str) -> list[str]:
    """In the order of pytest's summary."""
    return list(dict.fromkeys(_FAILED_TEST.findall(output)))


def judge_test_run(ran: Ran) -> tuple[str, str]:
    """Result, and the test that noticed it. Raises Unjudged."""
    if ran.code is None:
        return TIMEOUT, last_line(ran.output)
    if ran.code == PASSED:
        return SURVIVES, ""
    failed = failed_tests(ran.output)
    if ran.code in (FAILED, INTERRUPTED) and failed:
        return KILLED, failed[0]
    raise Unjudged(f"pytest ended with {ran.code}: {last_line(ran.output)}")


def judge_seed_run(ran: SeedRan) -> tuple[str, str] | None:
    """Result, and what the seed noticed; None: nothing."""
    if ran.failures:
        return KILLED, f"seed {ran.seed}: {ran.failures[0][:100]}"
    return None if ran.ended else (TIMEOUT, f"seed {ran.seed}: it does not end")


def kind_of_test(killer: str) -> str:
    """Of what kind a test is: unit (properties among them), path, or contract."""
    for kind in ("path", "contract", "simulation"):
        if killer.startswith(f"tests/{kind}/"):
            return kind
    return "unit" if killer else ""


def is_final_result(result: str) -> bool:
    """Whether there is nothing more to be found out."""
    return result in (KILLED, TIMEOUT, SURVIVES, BROKEN)
