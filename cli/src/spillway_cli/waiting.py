"""Waits until a workload is ready or gone, or until a cluster has handed over its replicas."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from spillway.api import (
    ClusterReply,
    GetRequest,
    ListBrakesReply,
    ListBrakesRequest,
    ListClustersRequest,
    PlacementReply,
    RequestError,
    WorkloadReply,
)
from spillway.api_lending import ListLendingRequest
from spillway.events import PHASE_DRAINING, STATE_PRESENT
from spillway.kubernetes.objects import JOB_COMPLETE
from spillway.rpc.client import LendingClient, PlannerClient
from spillway.scopes import FLEET_SCOPE, cluster_scope
from spillway.status_details import details_of_status, text_with_hold
from spillway.texts import counted_noun
from spillway.troubles import TroubleCode, code_of_record
from spillway_cli.exits import Code, CommandFailed
from spillway_cli.tables import loans_text, sorted_by_cluster

POLL_SECONDS = 0.5
LEFT_NAMED = 3
"""The most workloads that one progress line names."""

Said = Callable[[str], None]


def left_workloads_text(cluster: ClusterReply) -> str:
    """Returns a text with the workloads still in a cluster, each with the reason; empty if the planner lists none."""
    named = [
        f"{one.namespace}/{one.name} ({one.state}{one.reason and ': '}{one.reason})"
        for one in cluster.left[:LEFT_NAMED]
    ]
    more = cluster.workloads - len(named)
    return ", ".join(named) + (f" and {more} more" if named and more > 0 else "")


async def wait_until_ready(client: PlannerClient, wanted: PlacementReply, seconds: float, say: Said) -> WorkloadReply:
    """Waits until every replica is ready, and returns the workload.

    Fails with the exit code TIMED_OUT, or with IN_PART when only room is missing.
    """
    return await _wait_until_nothing_lacks(client, wanted, seconds, say, missing_for_ready_text)


async def wait_until_moved(client: PlannerClient, wanted: PlacementReply, seconds: float, say: Said) -> WorkloadReply:
    """Waits until every replica is ready and none is leaving. Returns and fails as wait_until_ready does."""
    return await _wait_until_nothing_lacks(
        client,
        wanted,
        seconds,
        say,
        lambda reply, generation: _leaving_replicas_text(reply) or missing_for_ready_text(reply, generation),
    )


async def _wait_until_nothing_lacks(
    client: PlannerClient,
    wanted: PlacementReply,
    seconds: float,
    say: Said,
    lack_of: Callable[[WorkloadReply, int], str],
) -> WorkloadReply:
    last: WorkloadReply | None = None

    async def has_all_it_needs() -> bool:
        nonlocal last
        last = await client.get(GetRequest(wanted.namespace, wanted.name))
        lack = lack_of(last, wanted.generation)
        if lack:
            say(lack)
        return not lack

    if await _poll_until_true(has_all_it_needs, seconds):
        assert last is not None
        return last
    lack = "no answer" if last is None else lack_of(last, wanted.generation)
    only_room = last is not None and last.placement.unplaced > 0 and not _first_unready_part_text(last)
    code = Code.IN_PART if only_room else Code.TIMED_OUT
    raise CommandFailed(f"{wanted.namespace}/{wanted.name}: not ready after {seconds:g} s: {lack}", code)


def _leaving_replicas_text(reply: WorkloadReply) -> str:
    """Returns a text on the replicas that have not left yet; empty if none is leaving."""
    texts = [
        f"{counted_noun(part.replicas_leaving, 'replica')} to leave {part.cluster}"
        for part in reply.placement.parts
        if part.replicas_leaving
    ]
    return ", ".join(texts)


async def wait_until_gone(client: PlannerClient, namespace: str, name: str, seconds: float, say: Said) -> None:
    """Waits until no cluster holds the workload any more. Fails with the exit code TIMED_OUT."""
    left = "no answer"

    async def is_gone() -> bool:
        nonlocal left
        try:
            reply = await client.get(GetRequest(namespace, name))
        except RequestError as error:
            if error.code == "NOT_FOUND":
                return True
            raise
        left = "still in " + (", ".join(part.cluster for part in sorted_by_cluster(reply.placement.parts)) or "the log")
        say(left)
        return False

    if not await _poll_until_true(is_gone, seconds):
        raise CommandFailed(f"{namespace}/{name}: not gone after {seconds:g} s: {left}", Code.TIMED_OUT)


async def wait_until_withdrawn(client: LendingClient, cluster: str, seconds: float, say: Said) -> None:
    """Waits until all nodes that a cluster has lent are back and its rules are forgotten. Fails with TIMED_OUT."""
    left = "no answer"

    async def is_withdrawn() -> bool:
        nonlocal left
        try:
            (found,) = (await client.list_lending(ListLendingRequest(cluster))).clusters
        except RequestError as error:
            if error.code == "NOT_FOUND":
                return True
            raise
        if not found.withdrawing:
            raise CommandFailed(f"{cluster}: somebody declared its lending again")
        away = found.nodes_lent + found.nodes_recalled + found.nodes_checking
        left = (
            f"{counted_noun(away, 'node')} to come back"
            if away
            else "all nodes are back, and their marks are being checked"
        )
        say(f"{cluster}: {left}")
        return False

    if not await _poll_until_true(is_withdrawn, seconds):
        raise CommandFailed(f"{cluster}: not withdrawn after {seconds:g} s: {left}", Code.TIMED_OUT)


async def wait_until_handed_over(
    client: PlannerClient, name: str, phase: str, seconds: float, say: Said
) -> ClusterReply | None:
    """Waits until no placement lists a draining cluster, and returns that cluster. For a leaving cluster it waits until
    the cluster has left, and returns None.

    Fails with the exit code TIMED_OUT.
    """
    left, cluster = "no answer", None

    async def is_handed_over() -> bool:
        nonlocal left, cluster
        cluster = next((entry for entry in await read_clusters(client) if entry.cluster == name), None)
        if cluster is None:
            return True
        if cluster.phase != phase:
            raise CommandFailed(f"{name}: it is {cluster.phase} now, because somebody changed its phase")
        if phase == PHASE_DRAINING and not cluster.workloads:
            return True
        left = (
            f"{counted_noun(cluster.replicas, 'replica')} of {counted_noun(cluster.workloads, 'workload')} still there"
        )
        left += f": {named}" if (named := left_workloads_text(cluster)) else ""
        held = handover_obstacles_text(await client.list_brakes(ListBrakesRequest()), name)
        left += "".join(f"; {text}" for text in (loans_text(cluster), held, cluster.trouble) if text)
        say(f"{name}: {left}")
        return False

    if not await _poll_until_true(is_handed_over, seconds):
        raise CommandFailed(f"{name}: not done after {seconds:g} s: {left}", Code.TIMED_OUT)
    return cluster


async def wait_until_heard(client: PlannerClient, joined: ClusterReply, seconds: float) -> ClusterReply:
    """Waits until the cluster is ready or refuses our credential, and returns it; after the time, as it is then.

    A refusal that the cluster already had when it joined does not end the wait: this join may have fixed it.
    """
    last = joined

    def is_heard() -> bool:
        refused = last.trouble != joined.trouble and is_access_refused(last)
        return last.state in ("Ready", "Duplicate") or refused

    async def is_heard_in_new_answer() -> bool:
        nonlocal last
        last = next((entry for entry in await read_clusters(client) if entry.cluster == joined.cluster), last)
        return is_heard()

    if not is_heard():
        await _poll_until_true(is_heard_in_new_answer, seconds)
    return last


def is_access_refused(cluster: ClusterReply) -> bool:
    """Returns whether the cluster's trouble is our credential, or a right that our account lacks."""
    return code_of_record(cluster.trouble_code, cluster.trouble) == TroubleCode.NOT_ALLOWED


async def read_clusters(client: PlannerClient) -> tuple[ClusterReply, ...]:
    """Returns the clusters of the fleet."""
    return (await client.list_clusters(ListClustersRequest())).clusters


def handover_obstacles_text(reply: ListBrakesReply, cluster: str) -> str:
    """Returns a text with what stops a cluster's handover: brakes, confirmations, or a budget below 1; else empty."""
    scopes = (FLEET_SCOPE, cluster_scope(cluster))
    texts = [f"{brake.scope} is frozen: {brake.reason}" for brake in reply.brakes if brake.scope in scopes]
    texts += [
        f"waits for `spillway confirm {entry.scope}`"
        for entry in reply.confirmations
        if entry.cluster == cluster and not entry.given
    ]
    if reply.moves_per_minute < 1:
        texts.append(f"the budget is {reply.moves_per_minute:g} moves a minute")
    return "; ".join(texts)


def missing_for_ready_text(reply: WorkloadReply, generation: int) -> str:
    """Returns a text for the user on what the workload still needs to be ready; empty if it is ready."""
    placement = reply.placement
    if placement.generation < generation:
        return "the planner's answer is still older than the request"
    if placement.unplaced:
        return f"{placement.unplaced} replicas wait for {placement.waiting_for or 'room'}"
    rollout = placement.waiting_for if "rollout " in placement.waiting_for else ""
    return "; ".join(filter(None, (_first_unready_part_text(reply), rollout)))


def _first_unready_part_text(reply: WorkloadReply) -> str:
    statuses = {status.cluster: status for status in reply.statuses}
    for part in reply.placement.parts:
        status = statuses.get(part.cluster)
        if part.removing:
            return text_with_hold(f"{part.cluster}: being removed", status)
        if status is None:
            return f"{part.cluster}: no report of it yet"
        if not status.current:
            return text_with_hold(f"{part.cluster}: not carried out yet", status)
        if status.state != STATE_PRESENT:
            return f"{part.cluster}: {status.state}{': ' + status.message if status.message else ''}"
        job = details_of_status(status).job
        if job is not None and job.condition == JOB_COMPLETE:
            continue
        # During a rollout pods of the old template are ready, too, so ready pods alone do not count.
        if min(status.ready, status.updated) < part.replicas or status.spec_replicas != part.replicas:
            waits = f", {status.unschedulable} pending" if status.unschedulable else ""
            return f"{part.cluster}: {min(status.ready, status.updated)} of {part.replicas} ready{waits}"
        if status.replicas > part.replicas and reply.kind != "Job":
            return f"{part.cluster}: {counted_noun(status.replicas - part.replicas)} more than asked for still there"
    return ""


async def _poll_until_true(look: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Calls look until it returns True. Returns False if the time is over first."""
    until = time.monotonic() + seconds
    while not await look():
        if time.monotonic() + POLL_SECONDS > until:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
