"""Defines limits of a number of replicas as codes with details, for decisions. division.words makes the text."""

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from spillway.feasibility.fit import NodeLimit


class LimitCode(StrEnum):
    """The reason why no more replicas fit."""

    NONE = "None"
    NODES = "Nodes"
    PROMISED = "Promised"
    ALL_PROMISED = "AllPromised"
    QUOTA = "Quota"
    NO_NODE_GROUPS = "NoNodeGroups"
    NODE_GROUPS_TAKE_NONE = "NodeGroupsTakeNone"
    NODE_GROUPS_BY_DOMAIN = "NodeGroupsByDomain"
    NODE_GROUPS_FULL = "NodeGroupsFull"
    AGE = "Age"
    GONE = "Gone"
    PHASE = "Phase"
    TWIN = "Twin"
    REFUSED = "Refused"
    ORPHAN = "Orphan"
    HELD = "Held"
    MAXIMUM = "Maximum"
    MISSING = "Missing"
    FROZEN = "Frozen"
    EMPTY_TIER = "EmptyTier"
    AVAILABLE = "Available"
    FOUND = "Found"
    RECORDED = "Recorded"


class Limit(NamedTuple):
    """A limit of a number of replicas.

    number: replicas, seconds or amounts.
    names: clusters, quotas or objects, as division.words reads them.
    nodes: only with the code NODES. Its number then counts the replicas that are not bound yet; 0 if they cost nothing.
    said: the whole text, if other code wrote it (the age of a cluster's view, limits from records); else empty.
    """

    code: LimitCode
    number: int = 0
    names: tuple[str, ...] = ()
    nodes: NodeLimit | None = None
    said: str = ""


NO_LIMIT: Final = Limit(LimitCode.NONE)


def limit_by_nodes(nodes: NodeLimit, not_bound: int = 0) -> Limit:
    return Limit(LimitCode.NODES, not_bound, (), nodes)


@lru_cache(maxsize=4096)
def limit_by_promised(count: int) -> Limit:
    """Returns the limit that replicas of another workload are promised and not bound yet. count: these replicas."""
    return Limit(LimitCode.PROMISED, count)
