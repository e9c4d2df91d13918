"""Defines the reasons that limit a number of replicas, as codes with details. division.words makes texts of them."""

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
    """The reason why no more replicas fit, with details.

    number: replicas, seconds or amounts, by the code.
    names: clusters, quotas or objects, by the code, as division.words reads them.
    nodes: only with the code NODES. `number` then counts the replicas that are not bound yet; 0 if they take no room.
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
    """Returns the limit for room that is promised to replicas of another workload. count: these unbound replicas."""
    return Limit(LimitCode.PROMISED, count)
