"""Answers as callers see them who may use some namespaces alone: without what is others'."""

from dataclasses import replace
from typing import Final

from spillway.api import ExplainReply, ListClustersReply
from spillway.rpc.callers import Caller

OTHERS: Final = "another namespace"
"""In place of workloads that the caller may not see."""


def clusters_seen_by(caller: Caller, reply: ListClustersReply) -> ListClustersReply:
    """Which clusters there are, how large, in which state: not how they are reached, nor what others run there."""
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
    """Without the names of workloads in namespaces that the caller may not ask about."""
    if not caller.is_restricted:
        return reply
    clusters = tuple(
        replace(
            entry,
            reserved=tuple(
                (name if caller.may_see(name.partition("/")[0]) else OTHERS, count) for name, count in entry.reserved
            ),
        )
        for entry in reply.clusters
    )
    return replace(reply, clusters=clusters)
