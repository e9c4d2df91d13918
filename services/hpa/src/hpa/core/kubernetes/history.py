"""Remembers which numbers of replicas the metrics asked for, and when the size changed by how much. Pure.

A step is (replicas, from, to): `replicas` was asked for at `from` and at `to`, and no other number was between them. So
the highest and lowest number of a window are the same over its steps as over all instants, whether these are 15 s apart
or at every change. And nothing is written while nothing changes. A step is dropped when one later step is at least as
high and another one at most as high, because it can limit no window any more. Instants are whole Unix milliseconds.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class Recommendation(Struct, frozen=True, gc=False):
    """A number that the metrics asked for, before any window or bound. from_ms, to_ms: its first and last instant."""

    replicas: int
    from_ms: int
    to_ms: int


class ScaleChange(Struct, frozen=True, gc=False):
    """A change of the size: how many replicas in its direction (above 0), and when.

    outdated: True if it was older than its direction's longest period at a later change. The next change replaces it.
    """

    change: int
    at_ms: int
    outdated: bool = False


Steps = tuple[Recommendation, ...]
ScaleChanges = tuple[ScaleChange, ...]


class ScalingHistory(Struct, frozen=True, gc=False):
    """The earlier numbers and changes of one workload.

    steps: the numbers asked for, oldest first; None: there was no decision yet.
    ups, downs: the scale-outs and scale-ins, in the order in which with_change leaves them.
    """

    steps: Steps | None = None
    ups: ScaleChanges = ()
    downs: ScaleChanges = ()


NOTHING_KNOWN: Final = ScalingHistory()


def with_recommendation(steps: Steps, replicas: int, at_ms: int, window_ms: int) -> Steps:
    """Returns the steps with one more number, asked for at at_ms. at_ms must not be before any step.

    Steps older than the window are dropped.
    """
    kept = [step for step in steps if step.to_ms >= at_ms - window_ms]
    if kept and kept[-1].replicas == replicas:
        kept[-1] = replace(kept[-1], to_ms=at_ms)
    else:
        kept.append(Recommendation(replicas, at_ms, at_ms))
    return _limiting_steps(kept)


def extend_newest_step(steps: Steps, until_ms: int) -> Steps:
    """Extends the newest step to until_ms, because between two events no other number is asked for."""
    if not steps or steps[-1].to_ms >= until_ms:
        return steps
    return (*steps[:-1], replace(steps[-1], to_ms=until_ms))


def _limiting_steps(steps: list[Recommendation]) -> Steps:
    found: list[Recommendation] = []
    highest = lowest = steps[-1].replicas
    for step in reversed(steps):
        # A step between the lowest and the highest of later steps can limit no window.
        if found and lowest <= step.replicas <= highest:
            continue
        found.append(step)
        if step.replicas > highest:
            highest = step.replicas
        elif step.replicas < lowest:
            lowest = step.replicas
    return tuple(found[::-1])


def highest_since(steps: Iterable[Recommendation], after_ms: int, least: int) -> int:
    """Returns the highest number asked for after after_ms; `least` if that is higher."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas > least:
            least = step.replicas
    return least


def lowest_since(steps: Iterable[Recommendation], after_ms: int, most: int) -> int:
    """Returns the lowest number asked for after after_ms; `most` if that is lower."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas < most:
            most = step.replicas
    return most


def replicas_changed_since(changes: Iterable[ScaleChange], after_ms: int) -> int:
    """Returns how many replicas these changes added (or removed) after after_ms."""
    return sum(change.change for change in changes if change.at_ms > after_ms)


def with_change(changes: ScaleChanges, change: int, at_ms: int, period_ms: int) -> ScaleChanges:
    """Returns the changes with a new one, which replaces the last outdated one.

    period_ms: the direction's longest period.

    Other outdated changes stay, as in Kubernetes, because the other direction may have longer periods that count them.
    """
    marked = [replace(one, outdated=one.outdated or one.at_ms < at_ms - period_ms) for one in changes]
    place = max((place for place, one in enumerate(marked) if one.outdated), default=len(marked))
    return (*marked[:place], ScaleChange(change, at_ms), *marked[place + 1 :])
