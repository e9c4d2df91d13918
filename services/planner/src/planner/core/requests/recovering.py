"""Recovers a fleet whose log was lost. Objects with the former fleet's label are adopted by this fleet as they run."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import is_workload_gone
from planner.core.manifests.kinds import WHOLE
from planner.core.requests.adopting import (
    RunningReplicas,
    declared_as_found,
    manifest_texts,
    refuse_different_manifests,
)
from spillway.api import RecoveredWorkload, RecoverFleetReply, RecoverFleetRequest, RequestError, invalid_argument_error
from spillway.events import FOUND, AdoptionAsked, Event, WorkloadFound
from spillway.feasibility.cluster_view import WorkloadKey

FLEET_ID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

FOUND_NOW = "Found"
RECOVERING = "Recovering"
REFUSED = "Refused"
"""The states of a found workload. FOUND_NOW: it may be recovered. RECOVERING: it is declared, and its objects are being
taken over. REFUSED: it is left as it is."""

FoundByCluster = dict[str, WorkloadFound]


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """The events of a recovery, to be written in one transaction, and the reply to send once they are in the log."""

    events: tuple[Event, ...]
    reply: RecoverFleetReply


def recovery_question(state: PlannerState, request: RecoverFleetRequest, fleet: str, moment: Moment) -> AdoptionAsked:
    """Returns the question to every cluster of the fleet, as each may have a part of a workload.

    Raises RequestError if a cluster is not fresh or is a twin, or if the former fleet's id is wrong.
    """
    if not FLEET_ID.fullmatch(request.fleet_before):
        raise invalid_argument_error(
            "fleet_before", request.fleet_before, "the id of a fleet, as in the label spillway.io/fleet"
        )
    if request.fleet_before == fleet:
        raise invalid_argument_error("fleet_before", request.fleet_before, "another fleet's id than this one's")
    clusters = tuple(joined.cluster for joined in state.joined_clusters())
    if not clusters:
        raise RequestError("FAILED_PRECONDITION", "no cluster has joined: join the clusters of the former fleet first")
    for name in clusters:
        stale = state.clusters[name].staleness_reason(moment.now, state.rules.capacity_age_max)
        if stale:
            text = f"cluster {name}: {stale}: every cluster must be heard, or leave first (`spillway cluster leave`)"
            raise RequestError("FAILED_PRECONDITION", text)
        if state.clusters[name].twin_reason:
            text = f"cluster {name}: {state.clusters[name].twin_reason}: it must leave first (`spillway cluster leave`)"
            raise RequestError("FAILED_PRECONDITION", text)
    return AdoptionAsked(moment.generation, "", "", clusters, request.fleet_before)


def decide_recovery(
    state: PlannerState,
    request: RecoverFleetRequest,
    found: Iterable[WorkloadFound],
    ends: Mapping[str, WorkloadFound],
    moment: Moment,
    events_max: int,
) -> RecoveryDecision:
    """Decides a RecoverFleet request: declares the found workloads, until there are events_max events.

    Without request.confirmed it only reports the workloads that it would declare. The request may be repeated: a
    declared workload is not declared twice, and a workload that was taken over is not found again.
    """
    for cluster, end in sorted(ends.items()):
        if end.state != FOUND:
            raise RequestError("FAILED_PRECONDITION", f"cluster {cluster}: {end.message}")
    by_key: dict[WorkloadKey, FoundByCluster] = {}
    for one in found:
        by_key.setdefault((one.namespace, one.name), {})[one.cluster] = one
    said, events, remaining = [], list[Event](), 0
    for key in sorted(by_key):
        state_now, text, decided = _consider_workload(state, request, key, by_key[key], moment)
        if state_now == FOUND_NOW and request.confirmed:
            if len(events) >= events_max:
                remaining += 1
            else:
                events.extend(decided)
                state_now = RECOVERING
        said.append(_recovered_workload(key, by_key[key], state_now, text))
    notes = tuple(f"{cluster}: {end.message}" for cluster, end in sorted(ends.items()) if end.message)
    return RecoveryDecision(tuple(events), RecoverFleetReply(request.fleet_before, tuple(said), remaining, notes))


def _consider_workload(
    state: PlannerState, request: RecoverFleetRequest, key: WorkloadKey, found: FoundByCluster, moment: Moment
) -> tuple[str, str, tuple[Event, ...]]:
    """Returns the state of one workload for the answer, the reason, and the events that would recover it."""
    known = state.workloads.get(key)
    if known is not None and not is_workload_gone(known):
        parts = known.parts
        same = all(name in parts and parts[name].found_uid == one.uid for name, one in found.items())
        if same:
            return RECOVERING, "", ()
        return REFUSED, "a workload of this name is declared already: disown or delete one of both", ()
    for cluster, one in sorted(found.items()):
        if one.state != FOUND:
            return REFUSED, f"{cluster}: {one.message}", ()
    running = RunningReplicas(
        {cluster: one.replicas for cluster, one in found.items()},
        {cluster: one.uid for cluster, one in found.items()},
        request.fleet_before,
    )
    kind = json.loads(found[min(found)].manifest)["kind"]
    if kind in WHOLE and len(found) > 1:
        return REFUSED, f"a {kind} goes whole to one cluster, and is in {' and '.join(sorted(found))}", ()
    try:
        refuse_different_manifests(key, found)
        decided = declared_as_found(state, key, manifest_texts(found[min(found)]), running, moment, "Recover")
    except RequestError as error:
        return REFUSED, error.text, ()
    return FOUND_NOW, "; ".join(decided.warnings), (decided.declared, *decided.dependencies, *decided.placed.events)


def _recovered_workload(key: WorkloadKey, found: FoundByCluster, state: str, message: str) -> RecoveredWorkload:
    replicas = tuple((cluster, one.replicas) for cluster, one in sorted(found.items()))
    return RecoveredWorkload(*key, state, message, replicas)
