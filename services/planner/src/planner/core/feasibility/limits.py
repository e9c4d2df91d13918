"""What bounds a number of replicas: a code, by which programs decide, with details. division.words makes its text."""

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from spillway.feasibility.fit import NodeLimit


class LimitCode(StrEnum):
    """What it is that lets in no more."""

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
    """number: replicas, seconds or amounts. names: of clusters, quotas, objects, … as division.words reads them.

    nodes: of NODES alone; its number is of replicas that are not bound yet, 0 where those cost nothing.
    said: the text where others made it: a cluster's view of its own age, and records, which have no more than that.
    """

    code: LimitCode
    number: int = 0
    names: tuple[str, ...] = ()
    nodes: NodeLimit | None = None
    said: str = ""


NO_LIMIT: Final = Limit(LimitCode.NONE)


def by_nodes(nodes: NodeLimit, not_bound: int = 0) -> Limit:
    return Limit(LimitCode.NODES, not_bound, (), nodes)


@lru_cache(maxsize=4096)
def by_promised(count: int) -> Limit:
    """So many replicas of another workload, not bound yet, take more than the nodes lack."""
    return Limit(LimitCode.PROMISED, count)
