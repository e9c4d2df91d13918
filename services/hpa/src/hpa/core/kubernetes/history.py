"""What a decision remembers: the numbers that were asked for, and by how much it scaled and when. Pure.

Recommendations are steps (replicas, from, to): replicas was asked for at `from`, at `to` and at no instant between
them was another number. So a window's extreme over the steps is that over all its instants, whether they are 15 s apart
or at every change, and nothing is written while nothing changes. A step goes once later ones are both at least and at
most as high, since it can then bind no window. Instants are whole milliseconds.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class Step(Struct, frozen=True, gc=False):
    """replicas: as the metrics asked for, before any window or bound. from_ms, to_ms: first and last instant of it."""

    replicas: int
    from_ms: int
    to_ms: int


class ScaleChange(Struct, frozen=True, gc=False):
    """By how many replicas a decision scaled in its direction, always above 0, and when.

    outdated: a later change found it older than its direction's longest period; the next one takes its place.
    """

    change: int
    at_ms: int
    outdated: bool = False


Steps = tuple[Step, ...]
ScaleChanges = tuple[ScaleChange, ...]


class History(Struct, frozen=True, gc=False):
    """steps: oldest first. ups, downs: as with_change places them. steps None: this workload was never decided on."""

    steps: Steps | None = None
    ups: ScaleChanges = ()
    downs: ScaleChanges = ()


NOTHING_KNOWN: Final = History()


def recorded(steps: Steps, replicas: int, at_ms: int, window_ms: int) -> Steps:
    """The steps with what was asked for at at_ms, which is not before any of them; what no window reaches is gone."""
    kept = [step for step in steps if step.to_ms >= at_ms - window_ms]
    if kept and kept[-1].replicas == replicas:
        kept[-1] = replace(kept[-1], to_ms=at_ms)
    else:
        kept.append(Step(replicas, at_ms, at_ms))
    return _that_can_bind(kept)


def held(steps: Steps, until_ms: int) -> Steps:
    """The newest step goes on until then: between two events nothing else was asked for."""
    if not steps or steps[-1].to_ms >= until_ms:
        return steps
    return (*steps[:-1], replace(steps[-1], to_ms=until_ms))


def _that_can_bind(steps: list[Step]) -> Steps:
    found: list[Step] = []
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


def highest_since(steps: Iterable[Step], after_ms: int, least: int) -> int:
    """The most that was asked for at an instant after after_ms; at least least."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas > least:
            least = step.replicas
    return least


def lowest_since(steps: Iterable[Step], after_ms: int, most: int) -> int:
    """The least that was asked for at an instant after after_ms; at most most."""
    for step in steps:
        if step.to_ms > after_ms and step.replicas < most:
            most = step.replicas
    return most


def changed_since(changes: Iterable[ScaleChange], after_ms: int) -> int:
    """Replicas that came (or went) after after_ms."""
    return sum(change.change for change in changes if change.at_ms > after_ms)


def with_change(changes: ScaleChanges, change: int, at_ms: int, period_ms: int) -> ScaleChanges:
    """The changes with a new one, in the place of the last that is older than period_ms, the direction's longest.

    Others that are older stay, as in Kubernetes: the other direction's periods may be longer, and look at them.
    """
    marked = [replace(one, outdated=one.outdated or one.at_ms < at_ms - period_ms) for one in changes]
    place = max((place for place, one in enumerate(marked) if one.outdated), default=len(marked))
    return (*marked[:place], ScaleChange(change, at_ms), *marked[place + 1 :])
