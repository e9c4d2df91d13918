"""Ranks nodes for the bridge's work: first come the nodes that the next write returns to their owner soonest."""

from enum import IntEnum

from spillway.lending_marks import RECALLED


class Urgency(IntEnum):
    """The rank of a node; a higher one is worked on first.

    LEAVING: its pods are terminating. Until their grace is over, no write brings the node back sooner.
    RECALLED: it has to be marked and its pods deleted; only then their grace begins.
    EMPTY: no pool pod runs there, so a few writes give it back.
    """

    NOBODY_WAITS = 0
    LEAVING = 1
    RECALLED = 2
    EMPTY = 3


def urgency_of_delayed_work(urgency: Urgency) -> Urgency:
    """Returns the rank of a node whose work is put off for a time, for example until the forced end of a pod.

    A node whose pods are terminating waits for just this work, so nothing may come before it then.
    """
    return Urgency.RECALLED if urgency == Urgency.LEAVING else urgency


def urgency_of_node(state: str, *, recalled: bool, has_real_pods: bool) -> Urgency:
    """Returns the rank of a node. state: the state of its register.

    recalled: whether the node has an open recall, so that its owner waits.
    """
    if not recalled:
        return Urgency.NOBODY_WAITS
    if state != RECALLED:
        return Urgency.RECALLED
    return Urgency.LEAVING if has_real_pods else Urgency.EMPTY
