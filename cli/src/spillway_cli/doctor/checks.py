"""Defines the result of one check of an installation: its outcome, a text, and a hint that helps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

SHOWN_MAX = 20
"""The most checks of one kind that are shown one by one. Of the others only the number is shown."""


class CheckOutcome(StrEnum):
    """The outcome of a check. skipped: the check could not be done; its hint names the missing setting."""

    ok = "ok"
    warning = "warning"
    failed = "failed"
    skipped = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. hint: what to do; empty if nothing needs to be done."""

    name: str
    outcome: CheckOutcome
    text: str
    hint: str = ""


def ok_check(name: str, text: str) -> Check:
    return Check(name, CheckOutcome.ok, text)


def warning_check(name: str, text: str, hint: str) -> Check:
    return Check(name, CheckOutcome.warning, text, hint)


def failed_check(name: str, text: str, hint: str) -> Check:
    return Check(name, CheckOutcome.failed, text, hint)


def skipped_check(name: str, text: str, hint: str) -> Check:
    return Check(name, CheckOutcome.skipped, text, hint)


def shown_names_text(names: Iterable[str]) -> str:
    """Returns the first few names, and the number of the others."""
    listed = list(names)
    rest = f" and {len(listed) - SHOWN_MAX} more" if len(listed) > SHOWN_MAX else ""
    return ", ".join(listed[:SHOWN_MAX]) + rest


def shortened_checks(name: str, checks: Sequence[Check], hint: str) -> list[Check]:
    """Returns the first few checks, failed ones first, and one more that has the number of the others."""
    ordered = sorted(checks, key=lambda check: check.outcome is not CheckOutcome.failed)
    if len(ordered) <= SHOWN_MAX:
        return ordered
    rest = ordered[SHOWN_MAX:]
    return [*ordered[:SHOWN_MAX], Check(name, rest[0].outcome, f"{len(rest)} more are like these", hint)]
