"""Which node is worked on first: the one whose owner has it soonest by what is done next."""

from enum import IntEnum

from spillway.lending_marks import RECALLED


class Urgency(IntEnum):
    """Of one node, rising.

    LEAVING: its pods have been told to go, and until their grace is over nothing that is done brings it back sooner.
    RECALLED: it is to be marked, and its pods to be told: their grace begins then. EMPTY: nothing of a pool runs there,
    so that a few writes give it back.
    """

    NOBODY_WAITS = 0
    LEAVING = 1
    RECALLED = 2
    EMPTY = 3


def urgency(state: str, *, recalled: bool, has_real_pods: bool) -> Urgency:
    """state: of the register. recalled: a recall of it stands, so that its owner waits."""
    if not recalled:
        return Urgency.NOBODY_WAITS
    if state != RECALLED:
        return Urgency.RECALLED
    return Urgency.LEAVING if has_real_pods else Urgency.EMPTY
