"""One check of an installation: how it came out, in words, and what mends it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

SHOWN_MAX = 20
"""So many things of one kind are named; of the others only how many there are."""


class Outcome(StrEnum):
    """skipped: it could not be looked at, and the hint says what would let it."""

    ok = "ok"
    warning = "warning"
    failed = "failed"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """hint: what mends it; empty where nothing is to mend."""

    name: str
    outcome: Outcome
    text: str
    hint: str = ""


def ok(name: str, text: str) -> Check:
    return Check(name, Outcome.ok, text)


def warning(name: str, text: str, hint: str) -> Check:
    return Check(name, Outcome.warning, text, hint)


def failed(name: str, text: str, hint: str) -> Check:
    return Check(name, Outcome.failed, text, hint)


def skipped(name: str, text: str, hint: str) -> Check:
    return Check(name, Outcome.skipped, text, hint)


def named(names: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    listed = list(names)
    rest = f" and {len(listed) - SHOWN_MAX} more" if len(listed) > SHOWN_MAX else ""
    return ", ".join(listed[:SHOWN_MAX]) + rest


def shortened(name: str, checks: Sequence[Check], hint: str) -> list[Check]:
    """The first few, failed ones before the others, then one that says how many more there are."""
    ordered = sorted(checks, key=lambda check: check.outcome is not Outcome.failed)
    if len(ordered) <= SHOWN_MAX:
        return ordered
    rest = ordered[SHOWN_MAX:]
    return [*ordered[:SHOWN_MAX], Check(name, rest[0].outcome, f"{len(rest)} more are like these", hint)]
