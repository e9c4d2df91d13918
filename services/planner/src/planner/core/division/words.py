"""What replicas wait for, in words that do not grow with the fleet: some clusters by name, of the others how many."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from spillway.model import ClusterInput
from spillway.texts import counted, waiting

NAMED_MAX = 8
"""Clusters that a text names."""


def limits(inputs: Sequence[ClusterInput]) -> str:
    """What bound the first clusters that were looked at."""
    named = ((entry.cluster or f"tier {entry.tier}", entry.limited_by) for entry in inputs[:NAMED_MAX])
    return "; ".join(f"{name}: {limit}" for name, limit in named) or "no cluster"


def limits_of(inputs: Sequence[ClusterInput]) -> str:
    """The same of a refusal, which says how many clusters there are beside."""
    more = len(inputs) - NAMED_MAX
    return limits(inputs) + (f"; and {counted(more, 'cluster')} more" if more > 0 else "")


def lent_nodes(lent: Mapping[str, int]) -> list[tuple[int, str]]:
    """How many replicas wait for whose nodes. lent: replicas by cluster."""
    named, more, rest = _some(lent)
    return [
        *((count, f"nodes that {cluster} has lent") for cluster, count in named),
        (rest, f"nodes that {counted(more, 'cluster')} more have lent"),
    ]


def missing_in(what: str, clusters: Sequence[str]) -> str:
    """What these clusters lack, and which they are."""
    more = len(clusters) - NAMED_MAX
    return f"{what}, missing in {', '.join(clusters[:NAMED_MAX])}" + (f" and {more} more" if more > 0 else "")


def missing(counts: Mapping[str, int]) -> list[tuple[int, str]]:
    """How many replicas wait for what. counts: replicas by what is missing in which clusters."""
    named, more, rest = _some(counts)
    return [*((count, what) for what, count in named), (rest, f"{counted(more, 'other thing')} that clusters lack")]


def staying(stays: Mapping[str, int], lost: Collection[str], bound: str) -> Iterator[str]:
    """stays: replicas by cluster that they are to leave. bound: what bound the other clusters."""
    named, more, rest = _some(stays)
    for cluster, count in named:
        whose = f"of {'lost' if cluster in lost else 'draining'} cluster {cluster}"
        yield f"{waiting(count, whose)} for room elsewhere ({bound})"
    if more:
        whose = f"of {counted(more, 'cluster')} more"
        yield f"{waiting(rest, whose)} for room elsewhere"


def lacking(lacks: Mapping[str, int], inputs: Sequence[ClusterInput]) -> Iterator[str]:
    """lacks: replicas by cluster that its minimum lacks."""
    named, more, rest = _some(lacks)
    limit_of = {entry.cluster: entry.limited_by for entry in reversed(inputs)}
    for cluster, count in named:
        limit = limit_of.get(cluster, "no tier has it")
        yield f"room for {counted(count)} that the minimum of {cluster} lacks ({limit})"
    if more:
        yield f"room for {counted(rest)} that the minima of {counted(more, 'cluster')} more lack"


def _some(counts: Mapping[str, int]) -> tuple[list[tuple[str, int]], int, int]:
    """The first of them; how many clusters, and how many replicas, there are beside."""
    entries = sorted((name, count) for name, count in counts.items() if count)
    beside = entries[NAMED_MAX:]
    return entries[:NAMED_MAX], len(beside), sum(count for _, count in beside)


def without_figures(text: str) -> str:
    """A text without what stands in parentheses, which may stand in each other."""
    depth, kept = 0, []
    for character in text:
        depth += character == "("
        if not depth:
            kept.append(character)
        depth -= character == ")" and depth > 0
    return "".join(kept)
