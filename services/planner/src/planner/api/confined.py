"""Removes from replies the values that a caller with access to only some namespaces must not see."""

from dataclasses import replace
from typing import Final

from spillway.api import ExplainReply, ListClustersReply
from spillway.rpc.callers import Caller

OTHERS: Final = "another namespace"
"""The text in place of workloads that the caller may not see."""


def clusters_seen_by(caller: Caller, reply: ListClustersReply) -> ListClustersReply:
    """Returns the reply as this caller may see it.

    A restricted caller sees the clusters' sizes and states, but no endpoints and no figures of others' workloads.
    """
    if not caller.is_restricted:
        return reply
    clusters = tuple(
        replace(
            entry,
            credential="",
            endpoint="",
            node_groups=(),
            trouble="",
            requested=(),
            unschedulable_pods=0,
            replicas=0,
            workloads=0,
            left=(),
        )
        for entry in reply.clusters
    )
    return replace(reply, clusters=clusters)


def explanation_seen_by(caller: Caller, reply: ExplainReply) -> ExplainReply:
    """Returns the explanation without names of workloads in namespaces that the caller must not see."""
    if not caller.is_restricted:
        return reply
    clusters = tuple(
        replace(
            entry,
            reserved=tuple(
                (name if caller.may_see_namespace(name.partition("/")[0]) else OTHERS, count)
                for name, count in entry.reserved
            ),
        )
        for entry in reply.clusters
    )
    return replace(reply, clusters=clusters)
