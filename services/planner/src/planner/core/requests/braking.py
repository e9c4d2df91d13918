"""Decides Freeze, Unfreeze and Confirm requests, and lists the brakes with the replicas that they hold back."""

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import is_workload_gone
from planner.core.placement.reasons import counts_to_move, move_causes_by_cluster
from planner.core.requests.checking import check_text
from planner.core.requests.cluster_names import refusal_naming_clusters
from spillway.api import (
    Brake,
    Confirmation,
    ConfirmRequest,
    FreezeRequest,
    ListBrakesReply,
    RequestError,
    UnfreezeRequest,
)
from spillway.events import BrakeReleased, BrakeSet, ConfirmationAsked, ConfirmationGiven
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.scopes import Scope, read_scope
from spillway.texts import first_names_text

REASON_LENGTH_MAX = 500

BrakeEvents = tuple[BrakeSet | BrakeReleased | ConfirmationGiven, ...]


def decide_freeze(state: PlannerState, request: FreezeRequest, by: str, moment: Moment) -> tuple[BrakeEvents, Brake]:
    """Decides a Freeze request: sets a brake, or changes the reason of a brake that is set.

    Raises RequestError (NOT_FOUND) when no such cluster or workload exists.
    """
    scope = read_scope(request.scope)
    check_text(request.reason, "reason", REASON_LENGTH_MAX)
    _check_scope_exists(state, scope)
    known = state.brakes.brakes.get(str(scope))
    if known is not None and known.reason == request.reason:
        return (), _brake_reply(state, known, moment.now)
    event = BrakeSet(str(scope), request.reason, by, moment.wall_ms)
    return (event,), _brake_reply(state, event, moment.now)


def decide_unfreeze(
    state: PlannerState, request: UnfreezeRequest, by: str, moment: Moment
) -> tuple[BrakeEvents, Brake]:
    """Decides an Unfreeze request: releases a brake, even if its cluster or workload no longer exists.

    Returns no events for a brake that is not set.
    """
    scope = read_scope(request.scope)
    known = state.brakes.brakes.get(str(scope))
    if known is None:
        _check_scope_exists(state, scope)
        return (), Brake(str(scope), False, "", "", 0, 0)
    released = BrakeReleased(str(scope), by, moment.wall_ms)
    return (released,), Brake(str(scope), False, known.reason, by, moment.wall_ms, 0)


def decide_confirm(
    state: PlannerState, request: ConfirmRequest, by: str, moment: Moment
) -> tuple[BrakeEvents, Confirmation]:
    """Decides a Confirm request: gives a confirmation. Raises RequestError (NOT_FOUND) if it was not asked for."""
    given = state.brakes.given.get(request.scope)
    if given is not None:
        return (), _confirmation_reply(state, given)
    if request.scope not in state.brakes.asked:
        asked = first_names_text(state.brakes.asked) or "none"
        raise RequestError(
            "NOT_FOUND", f"scope: {request.scope!r}: no move of this scope waits for a confirmation; waiting: {asked}"
        )
    event = ConfirmationGiven(request.scope, by, moment.wall_ms)
    return (event,), _confirmation_reply(state, event)


def list_brakes(state: PlannerState, now: float) -> ListBrakesReply:
    brakes = state.brakes
    return ListBrakesReply(
        brakes=tuple(_brake_reply(state, brakes.brakes[scope], now) for scope in sorted(brakes.brakes)),
        confirmations=tuple(
            _confirmation_reply(state, brakes.given.get(scope) or brakes.asked[scope])
            for scope in sorted({*brakes.asked, *brakes.given})
        ),
        moves_per_minute=state.rules.moves_per_minute,
        over_budget=brakes.replicas_over_budget,
        stale=False,
        moved_last_minute=brakes.replicas_moved_last_minute(now),
    )


def _brake_reply(state: PlannerState, event: BrakeSet, now: float) -> Brake:
    scope = read_scope(event.scope)
    if scope.name:
        replicas = _replicas_to_move(state, (scope.namespace, scope.name), now)
    else:
        replicas = state.brakes.replicas_to_move_from(scope.cluster) + _replicas_barred_from(state, scope.cluster)
    return Brake(event.scope, True, event.reason, event.by, event.at_ms, replicas)


def _replicas_barred_from(state: PlannerState, cluster: str) -> int:
    """Returns how many replicas would leave other clusters for this one if it were not frozen."""
    live = (workload for workload in state.workloads.values() if not workload.declared.deleting)
    return sum(count for one in live for (_, target), count in one.barred.items() if target == cluster)


def _replicas_to_move(state: PlannerState, key: WorkloadKey, now: float) -> int:
    workload = state.workloads.get(key)
    if workload is None:
        return 0
    return sum(counts_to_move(state, workload, move_causes_by_cluster(state, workload, now)).values())


def _confirmation_reply(state: PlannerState, event: ConfirmationAsked | ConfirmationGiven) -> Confirmation:
    """Returns a confirmation as an answer, with the replicas that it would move now. by: empty until it is given."""
    cause, _, cluster = event.scope.partition("/")
    given = isinstance(event, ConfirmationGiven)
    return Confirmation(
        scope=event.scope,
        cause=cause,
        cluster=cluster,
        replicas=state.brakes.wanted.get(event.scope, 0),
        fleet_replicas=state.fleet_replicas(),
        given=given,
        by=event.by if isinstance(event, ConfirmationGiven) else "",
        at_ms=event.at_ms,
    )


def _check_scope_exists(state: PlannerState, scope: Scope) -> None:
    if scope.cluster:
        names = [joined.cluster for joined in state.joined_clusters()]
        if scope.cluster not in names:
            text = f"scope: {str(scope)!r}: no cluster has this name; the fleet has"
            raise refusal_naming_clusters(state, "NOT_FOUND", text)
    elif scope.name:
        workload = state.workloads.get((scope.namespace, scope.name))
        if workload is None or is_workload_gone(workload):
            raise RequestError(
                "NOT_FOUND", f"scope: {str(scope)!r}: workload {scope.namespace}/{scope.name}: not declared"
            )
