"""Judges a mutant by the results of a run of tests or seeds."""

import re

from .ledger import BROKEN, KILLED, SURVIVES, TIMEOUT
from .workbench import Ran, SeedRan, last_line

PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
"""Exit codes of pytest."""
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\](?= - |$))?)", re.MULTILINE)


class Unjudged(Exception):
    """Raised when a run proves nothing about the mutant. The text says why."""


def failed_tests(output: str) -> list[str]:
    """Returns the failed tests in the order of pytest's summary."""
    return list(dict.fromkeys(_FAILED_TEST.findall(output)))


def judge_test_run(ran: Ran) -> tuple[str, str]:
    """Returns (result, the test that noticed the mutant). Raises Unjudged."""
    if ran.code is None:
        return TIMEOUT, last_line(ran.output)
    if ran.code == PASSED:
        return SURVIVES, ""
    failed = failed_tests(ran.output)
    if ran.code in (FAILED, INTERRUPTED) and failed:
        return KILLED, failed[0]
    raise Unjudged(f"pytest ended with {ran.code}: {last_line(ran.output)}")


def judge_seed_run(ran: SeedRan) -> tuple[str, str] | None:
    """Returns (result, the text of what the seed noticed); None if the seed noticed nothing."""
    if ran.failures:
        return KILLED, f"seed {ran.seed}: {ran.failures[0][:100]}"
    return None if ran.ended else (TIMEOUT, f"seed {ran.seed}: it does not end")


def kind_of_test(killer: str) -> str:
    """Returns the kind of a test: unit (also property tests), path, contract or simulation. Empty without a test."""
    for kind in ("path", "contract", "simulation"):
        if killer.startswith(f"tests/{kind}/"):
            return kind
    return "unit" if killer else ""


def is_final_result(result: str) -> bool:
    """Returns whether a result is final, so that the mutant needs no further run."""
    return result in (KILLED, TIMEOUT, SURVIVES, BROKEN)
