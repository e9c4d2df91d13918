"""What the active planner shows of members is what they hold, once all is at rest: counts, nodes, and explanations."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from planner.core.explaining import explanation
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.service import Planner
from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.pod_config import config_needed_by_pod, missing_config_by_container
from sim.core.pods import is_ready
from spillway.api import ExplainedCluster, ExplainReply, ExplainRequest, RequestError
from spillway.events import PHASE_ACTIVE
from spillway.feasibility.cluster_view import ClusterView
from spillway.model import NO_GENERATION, Part
from spillway_simulation import members
from spillway_simulation.brownfield import NAMESPACE
from spillway_simulation.dependencies import lacks_any_object
from spillway_simulation.users import User
from spillway_simulation.world import World

SHOWN = {
    "replicas": "replicas",
    "updated": "updatedReplicas",
    "ready": "readyReplicas",
    "available": "availableReplicas",
}
"""Of a status, and of the Deployment that it is about."""


def find_false_beliefs(world: World, users: list[User]) -> Iterator[str]:
    """What is believed and is not so, in words. For when nothing else is to come."""
    planner = world.active_planner()
    if planner is None:
        yield "no planner is active"
        return
    for name, view in planner.state.clusters.items():
        if view.joined is not None and name in world.clusters:
            yield from _false_beliefs_of_nodes(name, view, world.clusters[name])
    for workload in planner.state.workloads.values():
        for part in workload.parts.values():
            if not (part.removing or part.adopting or part.disowning):
                yield from _false_beliefs_of_part(planner, world.clusters[part.cluster], workload, part)
    for user in users:
        known = planner.state.workloads.get((NAMESPACE, user.name))
        if user.expected.exists and known is not None and not known.declared.disowning:
            yield from _false_explanations(world, planner, known, user)


def _false_beliefs_of_nodes(name: str, view: ClusterView, cluster: SimCluster) -> Iterator[str]:
    """A node that is believed to be there, or to be free, and is not; or the other way round."""
    records, nodes = cluster.control_plane.table.record_by_name, view.nodes
    believed = {nodes.names[row]: row for row in np.flatnonzero(nodes.live_mask).tolist()}
    if believed.keys() != records.keys():
        yield f"{name}: believed to have the nodes {sorted(believed)}, and has {sorted(records)}"
        return
    cpu = nodes.resources.get("cpu")
    for node, row in believed.items():
        record = records[node]
        if bool(nodes.unschedulable[row]) != bool(record.unschedulable):
            said = "cordoned" if nodes.unschedulable[row] else "open"
            yield f"{name}: {node} is believed to be {said}, and is not"
        if cpu is None or members.is_lent_node(record) or row in np.flatnonzero(nodes.virtual_mask):
            continue  # Of these an owner's own pods count, or a pool's.
        free = int(nodes.allocatable[cpu, row] - nodes.requested[cpu, row])
        if free != record.free.get("cpu", 0):
            yield f"{name}: {node} is believed to have {free}m of cpu free, and has {record.free.get('cpu', 0)}m"


def _false_beliefs_of_part(planner: Planner, cluster: SimCluster, workload: Workload, part: Part) -> Iterator[str]:
    """The object's counts, as its propagator and its collector say them."""
    where, found = (
        f"{workload.declared.name} in {part.cluster}",
        cluster.get_object("deployments", *reversed(workload.workload_key)),
    )
    said, facts = (
        workload.statuses.get(part.cluster),
        planner.state.clusters[part.cluster].facts.get(workload.workload_key),
    )
    if found is None:
        if facts is not None and facts.version != NO_GENERATION:
            yield f"{where}: counted at {facts.version}, and there is no object"
        return
    status: Mapping[str, Any] = found.get("status") or {}
    pods = members.pods_of(cluster, *workload.workload_key)
    ready, bound = (sum(map(how, pods)) for how in (is_ready, members.is_bound))
    waiting = sum(waits_for_config(cluster, pod) for pod in pods)
    if ready != status.get("readyReplicas", 0) or ready + waiting != bound:
        yield f"{where}: {ready} of {bound} bound pods are ready, its object says {status.get('readyReplicas', 0)}"
    if said is None:
        yield f"{where}: there, and nothing is said of it"
        return
    shown = {name: getattr(said, name) for name in SHOWN}
    truth = {name: status.get(of, 0) for name, of in SHOWN.items()}
    if shown != truth:
        yield f"{where}: said to have {shown}, and has {truth}"
    counted = sum(count for _, count in facts.counted) if facts is not None else 0
    if facts is None or (counted, facts.ready_replicas) != (bound, ready):
        yield f"{where}: {counted} pods are counted, {bound} are bound, {ready} are ready ({facts})"


def waits_for_config(cluster: SimCluster, pod: Object) -> bool:
    """Whether its node lets it wait for a Secret or a ConfigMap, which went after its object was there and still is
    not. Its reason alone says less: with what it mounts missing it is ContainerCreating, as any pod that begins.
    """
    if is_ready(pod) or not members.is_bound(pod):
        return False
    needed = config_needed_by_pod(pod["spec"])
    return bool(
        missing_config_by_container(
            lambda plural, key: cluster.get_object(plural, key[1], key[0]), pod["metadata"]["namespace"], needed
        )
    )


def _false_explanations(world: World, planner: Planner, workload: Workload, user: User) -> Iterator[str]:
    """A cluster is said to be bound by something that is not so."""
    try:
        reply = _explain_placement(world, planner, user.name)
    except RequestError as error:
        yield f"{user.name}: cannot be explained: {error}"
        return
    for entry in reply.clusters:
        if entry.cluster not in world.clusters:
            continue
        why_not = _why_explanation_is_false(world, planner, user, entry)
        part = workload.parts.get(entry.cluster)
        kept = part.replicas_kept if part is not None and not part.removing else 0
        if why_not:
            yield f"{user.name} in {entry.cluster}: explained as {entry.bound} ({entry.why}), and {why_not}"
        if not entry.node_groups and entry.before != kept:
            yield f"{user.name} in {entry.cluster}: explained to have {entry.before}, and has {kept}"


def _why_explanation_is_false(world: World, planner: Planner, user: User, entry: ExplainedCluster) -> str:
    """Why it is not what binds there; empty when it may be."""
    match entry.bound:
        case explanation.MISSING if not lacks_any_object(world.clusters[entry.cluster], user.expected.needs):
            return "nothing that it names is missing there"
        case explanation.ORPHAN if not world.is_name_taken(entry.cluster, user.name):
            return "no orphan is there"
        case explanation.PHASE if planner.state.clusters[entry.cluster].phase == PHASE_ACTIVE:
            return "the cluster is Active"
        case explanation.AGE:
            return "it answers"
    return ""


def _explain_placement(world: World, planner: Planner, name: str) -> ExplainReply:
    moment = Moment(world.loop.time(), world.platform.wall_ms(), NO_GENERATION)
    steps = explanation.explain_placement(planner.state, ExplainRequest(NAMESPACE, name), moment, None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            reply: ExplainReply = done.value
            return reply
