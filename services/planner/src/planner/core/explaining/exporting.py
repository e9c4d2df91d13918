"""Exports the state as events that recreate it elsewhere and later, for simulations.

Facts on which no placement depends are left out: answers to idempotency keys, contents of dependencies, and timers of
unbound replicas.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.timers import PlacementHold
from spillway.api import HeldBack
from spillway.columns import NO_NODES
from spillway.events import CapacityChanged, CapacityReported, Event
from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.volumes import NO_CLAIMS
from spillway.model import NamespaceFacts, NodeColumns, Shape

Exported = tuple[Event, NodeColumns | None]
"""An event, and the columns that belong to it."""


def exported_events(state: PlannerState, now: float) -> Iterator[Exported]:
    """Yields the events of one cluster after the other, each in its state at that time. Then yields all other events.

    The other events are of one moment after all clusters'. So a placement is at least as new as the capacity from which
    its replicas are subtracted, as in a planner that follows the log.
    """
    for name in [joined.cluster for joined in state.joined_clusters()]:
        view = state.clusters.get(name)
        if view is not None and view.joined is not None:
            yield from _cluster_events(view, now)
    yield from [(event, None) for event in _workload_events(state)]


def exported_holds(state: PlannerState, now: float) -> tuple[HeldBack, ...]:
    found = []
    for (cluster, whom), hold in state.holds.running_holds():
        left_ms = round((hold.until - now) * 1000)
        if left_ms > 0:
            shape = whom if isinstance(whom, Shape) else None
            namespace, name = ("", "") if isinstance(whom, Shape) else whom
            found.append(HeldBack(cluster, namespace, name, shape, left_ms, hold.seconds, hold.why))
    return tuple(found)


def restore_hold(state: PlannerState, entry: HeldBack, now: float) -> None:
    """Recreates a hold of the exported state. now: the time of the new state."""
    whom = entry.shape if entry.shape is not None else (entry.namespace, entry.name)
    state.holds[entry.cluster, whom] = PlacementHold(now + entry.left_ms / 1000, entry.seconds, why=entry.why)


def _cluster_events(view: ClusterView, now: float) -> Iterator[Exported]:
    assert view.joined is not None
    yield replace(view.joined, credential="", endpoint=""), None
    if view.epoch < 0:
        return
    namespaces = tuple(
        NamespaceFacts(
            name, tuple(labels.items()), view.quotas.get(name, ()), tuple(claims.claims.values()), claims.left_out
        )
        for name, labels in view.nodes.namespaces.items()
        for claims in (view.claims.get(name, NO_CLAIMS),)
    )
    facts = tuple(view.facts.values())
    report = CapacityReported(view.name, view.epoch, 0, 1, 0, 0, b"", facts, namespaces, view.api_server)
    yield report, view.nodes.columns_of_all_nodes()
    if not view.is_incomplete:  # An incomplete cluster gets nothing, like one that was never heard of.
        told = CapacityChanged(view.name, view.epoch, 0, 1, age_ms(view, now), b"", (), (), (), view.trouble)
        beat = replace(told, unread=view.unread, trouble_code=view.trouble_code)
        yield beat, NO_NODES
    for pending in view.pending.values():
        yield pending, None


def _workload_events(state: PlannerState) -> Iterator[Event]:
    yield from state.admitted.all_records()
    for workload in state.workloads.values():
        yield replace(workload.declared, answered=())
        if workload.placement is not None:
            yield workload.placement
        yield from workload.statuses.values()
    for dependency in state.declared.dependencies.values():
        yield replace(dependency, manifest=b"")
    for needs in state.needed.values():
        yield from needs.values()
    for policy in state.scalings.policies.values():
        yield replace(policy, manifest=b"")
    yield from state.scalings.decided.values()
    brakes = state.brakes
    for entries in (brakes.brakes, brakes.asked, brakes.given):
        yield from entries.values()
