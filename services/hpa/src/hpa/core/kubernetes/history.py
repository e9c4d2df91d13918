"""Remembers which numbers were asked for, and when the size changed by how much. Pure.

A step is (replicas, from, to): `replicas` was asked for at `from` and at `to`, and no other number was between them. So
a window's extreme over the steps equals its extreme over all instants, whether they are 15 s apart or at every change.
And nothing is written while nothing changes. A step is dropped once later ones are both at least and at most as high,
because it can bind no window any more. Instants are whole milliseconds.
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

    outdated: a later change found it older than its direction's longest period; the next change takes its place.
    """

    change: int
    at_ms: int
    outdated: bool = False


Steps = tuple[Recommendation, ...]
ScaleChanges = tuple[ScaleChange, ...]


class ScalingHistory(Struct, frozen=True, gc=False):
    """The memory of one workload.

    steps: oldest first; None: there was no decision yet.
    ups, downs: in the order of with_change.
    """

    steps: Steps | None = None
    ups: ScaleChanges = ()
    downs: ScaleChanges = ()


NOTHING_KNOWN: Final = ScalingHistory()


def recorded(steps: Steps, replicas: int, at_ms: int, window_ms: int) -> Steps:
    """Returns the steps with the number asked for at at_ms, which is not before any of them.

    Drops steps before the window.
    """
    kept = [step for step in steps if step.to_ms >= at_ms - window_ms]
    if kept and kept[-1].replicas == replicas:
        kept[-1] = replace(kept[-1], to_ms=at_ms)
    else:
        kept.append(Recommendation(replicas, at_ms, at_ms))
    return _that_can_bind(kept)


def held(steps: Steps, until_ms: int) -> Steps:
    """Extends the newest step until then, because no other number is asked for between two events."""
    if not steps or steps[-1].to_ms >= until_ms:
        return steps
    return (*steps[:-1], replace(steps[-1], to_ms=until_ms))


def _that_can_bind(steps: list[Recommendation]) -> Steps:
    found: list[Recommendation] = []
    highest = lowest = steps[-1].replicas
    for step in reversed(steps):
        if found and lowest <= step.replicas <= highest:
            continue
        found.append(step)
        if step.replicas > highest:
            highest = step.replicas
        elif step.replicas < lowest:
            lowest = step.replicas
    return tuple(found[::-1])


def highest_since(steps: Iterable[Recommendation], after_ms: int, least: int) -> int:
    """Returns the highest number asked for after after_ms, and `least` at least."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas > least:
            least = step.replicas
    return least


def lowest_since(steps: Iterable[Recommendation], after_ms: int, most: int) -> int:
    """Returns the lowest number asked for after after_ms, and `most` at most."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas < most:
            most = step.replicas
    return most


def changed_since(changes: Iterable[ScaleChange], after_ms: int) -> int:
    """Returns the number of replicas added (or removed) after after_ms."""
    return sum(change.change for change in changes if change.at_ms > after_ms)


def with_change(changes: ScaleChanges, change: int, at_ms: int, period_ms: int) -> ScaleChanges:
    """Returns the changes with a new one, which replaces the last outdated one.

    period_ms: the direction's longest period.

    Other outdated changes stay, as in Kubernetes, because the other direction may have longer periods that count them.
    """
    marked = [replace(one, outdated=one.outdated or one.at_ms < at_ms - period_ms) for one in changes]
    place = max((place for place, one in enumerate(marked) if one.outdated), default=len(marked))
    return (*marked[:place], ScaleChange(change, at_ms), *marked[place + 1 :])
