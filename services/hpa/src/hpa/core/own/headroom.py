"""Computes the size of near-line and offline work from headroom: a share of each supply class, at stated times.

Pure.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hpa.core.own.calendar import RecurringPeriod, window_state_at


class HeadroomShare(Struct, frozen=True):
    """A share of the room that a supply class has for this work, in percent. times: None for always."""

    supply_class: str
    percent: int
    times: RecurringPeriod | None = None


def open_percents(shares: Sequence[HeadroomShare], now_s: int) -> dict[str, int]:
    """Returns the open shares by supply class. Of several open shares of one class, the largest counts."""
    percents: dict[str, int] = {}
    for share in shares:
        if share.times is None or window_state_at(share.times, now_s).is_open:
            percents[share.supply_class] = max(percents.get(share.supply_class, 0), share.percent)
    return percents


def headroom_replicas(shares: Sequence[HeadroomShare], idle: Mapping[str, int], now_s: int) -> int:
    """Returns the size that uses the open shares. A supply class that is missing in `idle` has no room.

    idle: for each class, how many replicas of this workload it takes, including those that run there already. So the
        result does not change when some of them start.
    """
    percents = open_percents(shares, now_s)
    rooms = ((percent, idle[name]) for name, percent in percents.items() if name in idle)
    return sum(percent * room // 100 for percent, room in rooms)


def headroom_due_s(shares: Sequence[HeadroomShare], now_s: int) -> int | None:
    """Returns the time at which the next share opens or closes, in Unix seconds; None: never."""
    found = (window_state_at(share.times, now_s).due_s for share in shares if share.times is not None)
    return min((at for at in found if at is not None), default=None)
