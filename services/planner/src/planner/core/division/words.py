"""Makes texts for users about limits and about the things that replicas wait for.

The texts do not grow with the fleet: they name only the first clusters.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from planner.core.feasibility.admitted import REFUSED
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.feasibility.quantities import quantity_text
from planner.core.feasibility.quota import resource_of_quota_name
from planner.core.knowledge.closing import ORPHAN_THERE, delete_command
from planner.core.knowledge.placement_waits import PlacementWait
from spillway.model import ClusterInput
from spillway.texts import counted_noun, cut_text, waiting_text

NAMED_MAX = 8
"""The most clusters that a text names."""
WORDS_MAX = 300
"""The most characters of a text from a cluster. Longer texts are cut: each decision's record has one per cluster."""


class DivisionEntry(NamedTuple):
    """The input and result of a division for one cluster. It is a ClusterInput with a Limit in place of its text."""

    cluster: str
    tier: str
    certain: int
    possible: int
    reserved: int
    before: int
    after: int
    limited_by: Limit
    age_ms: int


def cluster_input_of(entry: DivisionEntry) -> ClusterInput:
    """Returns the entry as a ClusterInput, which decision records and gRPC answers contain."""
    cluster, tier, certain, possible, reserved, before, after, limited_by, age_ms = entry
    return ClusterInput(cluster, tier, certain, possible, reserved, before, after, limit_text(limited_by), age_ms)


# ── What bound a number ─────────────────────────────────────────────────────────────────────────────────────────────


def limit_text(limit: Limit) -> str:
    """Returns the text of a limit for users; empty for NO_LIMIT."""
    if limit.nodes is not None:
        return limit.nodes.as_text + _not_bound_text(limit.number) if limit.number else limit.nodes.as_text
    if limit.said:
        return limit.said
    return _LIMIT_TEXTS[limit.code](limit.number, *limit.names)


@lru_cache(maxsize=4096)
def _not_bound_text(count: int) -> str:
    return f"; {counted_noun(count)} not bound yet"


@lru_cache(maxsize=4096)
def _promised_text(count: int) -> str:
    return f"{counted_noun(count, 'promised replica')} of another workload not bound yet"


def _quota_text(left: int, quota: str, namespace: str, name: str) -> str:
    return f"quota {quota} in {namespace}: {name} {quantity_text(resource_of_quota_name(name), left)} left"


def _orphan_text(_: int, namespace: str, name: str, kind: str) -> str:
    return f"{ORPHAN_THERE}: `{delete_command((namespace, name), kind)}` there ends it"


def _held_text(seconds: int, whose: str, why: str) -> str:
    text = f"held for {seconds} s more: replicas of {whose} were taken back"
    return f"{text}: {cut_text(why, WORDS_MAX)}" if why else text


_LIMIT_TEXTS: Final[Mapping[LimitCode, Callable[..., str]]] = {
    LimitCode.NONE: lambda _: "",
    LimitCode.PROMISED: _promised_text,
    LimitCode.ALL_PROMISED: lambda count, *whose: (
        f"room for {counted_noun(count)}, all of it promised and not bound yet: {', '.join(whose)}"
    ),
    LimitCode.QUOTA: _quota_text,
    LimitCode.NO_NODE_GROUPS: lambda _: "no node groups",
    LimitCode.NODE_GROUPS_TAKE_NONE: lambda _: "no node group has a node that takes it",
    LimitCode.NODE_GROUPS_BY_DOMAIN: lambda _, *groups: (
        f"nothing is promised on new nodes of node groups {', '.join(groups)}: what fits depends on their domains"
    ),
    LimitCode.NODE_GROUPS_FULL: lambda _, *groups: f"node groups {', '.join(groups)} at their most",
    LimitCode.GONE: lambda _: "it has left",
    LimitCode.PHASE: lambda _, phase: f"the cluster is {phase}",
    LimitCode.REFUSED: lambda _, message: cut_text(f"{REFUSED}: {message}", WORDS_MAX),
    LimitCode.ORPHAN: _orphan_text,
    LimitCode.HELD: _held_text,
    LimitCode.MAXIMUM: lambda most: f"policy max {most}",
    LimitCode.MISSING: lambda _, what: f"{what} is missing there",
    LimitCode.FROZEN: lambda _: "frozen",
    LimitCode.EMPTY_TIER: lambda _: "no cluster of the fleet is in this tier",
    LimitCode.AVAILABLE: lambda _: "as many as are kept are available",
    LimitCode.FOUND: lambda _: "as it runs",
    LimitCode.RECORDED: lambda _: "",
}
"""By code, the text from a limit's number and names. Codes that are not listed always come with their text."""
_RECORDED_AS: Final = (
    ("held for ", LimitCode.HELD),
    ("the cluster is ", LimitCode.PHASE),
    ("the same API server as ", LimitCode.TWIN),
    (REFUSED, LimitCode.REFUSED),
    (ORPHAN_THERE, LimitCode.ORPHAN),
    ("capacity is ", LimitCode.AGE),
    ("no capacity heard", LimitCode.AGE),
    ("a change of its capacity", LimitCode.AGE),
)
"""The beginnings of limit texts that versions without codes wrote, with the code of each. All are limits by which a
cluster takes no replica at all."""
_CODES: Final = frozenset(code.value for code in LimitCode)


def recorded_limit(text: str, code: str) -> Limit:
    """Returns the limit for a record's text and code. It keeps the text. An unknown code of a later version becomes
    RECORDED."""
    if not code:
        return _read_older_limit(text)
    return Limit(LimitCode(code) if code in _CODES else LimitCode.RECORDED, said=text)


def _read_older_limit(text: str) -> Limit:
    """Returns the limit for a text of a version before 2026-11-28, which wrote no codes. It recognizes only the codes
    that explanations need."""
    codes = (code for words, code in _RECORDED_AS if text.startswith(words))
    return Limit(next(codes, LimitCode.RECORDED), said=text)


# ── What replicas wait for ──────────────────────────────────────────────────────────────────────────────────────────


def limits_text(inputs: Sequence[DivisionEntry]) -> str:
    """Returns a text that names the first NAMED_MAX clusters and what limits each."""
    named = ((entry.cluster or f"tier {entry.tier}", limit_text(entry.limited_by)) for entry in inputs[:NAMED_MAX])
    return "; ".join(f"{name}: {limit}" for name, limit in named) or "no cluster"


def refusal_limits_text(inputs: Sequence[DivisionEntry]) -> str:
    """Returns the text of limits_text(), with the number of clusters that it does not name. It is for refusals."""
    more = len(inputs) - NAMED_MAX
    return limits_text(inputs) + (f"; and {counted_noun(more, 'cluster')} more" if more > 0 else "")


def lent_node_waits(lent: Mapping[str, int]) -> list[tuple[int, str]]:
    """Returns (replicas, text) for each cluster whose lent nodes replicas wait for. lent: replicas by cluster."""
    named, more, rest = _first_entries(lent)
    return [
        *((count, f"nodes that {cluster} has lent") for cluster, count in named),
        (rest, f"nodes that {counted_noun(more, 'cluster')} more have lent"),
    ]


def missing_objects_text(what: str, clusters: Sequence[str]) -> str:
    """Returns a text with the missing objects and the clusters that lack them."""
    more = len(clusters) - NAMED_MAX
    return f"{what}, missing in {', '.join(clusters[:NAMED_MAX])}" + (f" and {more} more" if more > 0 else "")


def missing_object_waits(counts: Mapping[str, int]) -> list[tuple[int, str]]:
    """Returns (replicas, text) for each text about missing objects that replicas wait for.

    counts: the replicas by text of missing_objects_text().
    """
    named, more, rest = _first_entries(counts)
    return [
        *((count, what) for what, count in named),
        (rest, f"{counted_noun(more, 'other thing')} that clusters lack"),
    ]


def staying_replica_waits(stays: Mapping[str, int], lost: Collection[str], bound: str) -> Iterator[PlacementWait]:
    """Yields waits of replicas that must leave their cluster and have no place elsewhere.

    stays: these replicas by cluster. lost: the clusters among them that are lost. bound: a text with the limits of the
    other clusters.
    """
    named, more, rest = _first_entries(stays)
    for cluster, count in named:
        whose = f"of {'lost' if cluster in lost else 'draining'} cluster {cluster}"
        yield PlacementWait(f"{waiting_text(count, whose)} for room elsewhere", bound)
    if more:
        whose = f"of {counted_noun(more, 'cluster')} more"
        yield PlacementWait(f"{waiting_text(rest, whose)} for room elsewhere")


def unmet_minimum_waits(lacks: Mapping[str, int], inputs: Sequence[DivisionEntry]) -> Iterator[PlacementWait]:
    """Yields waits of clusters that lack replicas of their minimum. lacks: the number of these replicas by cluster."""
    named, more, rest = _first_entries(lacks)
    limit_of = {entry.cluster: entry.limited_by for entry in reversed(inputs)}
    for cluster, count in named:
        limit = limit_text(limit_of[cluster]) if cluster in limit_of else "no tier has it"
        yield PlacementWait(f"room for {counted_noun(count)} that the minimum of {cluster} lacks", limit)
    if more:
        yield PlacementWait(
            f"room for {counted_noun(rest)} that the minima of {counted_noun(more, 'cluster')} more lack"
        )


def _first_entries(counts: Mapping[str, int]) -> tuple[list[tuple[str, int]], int, int]:
    """Returns the first NAMED_MAX entries, then the number of the other entries, and the replicas of these."""
    entries = sorted((name, count) for name, count in counts.items() if count)
    beside = entries[NAMED_MAX:]
    return entries[:NAMED_MAX], len(beside), sum(count for _, count in beside)
