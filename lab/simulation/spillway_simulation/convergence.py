"""Checks the end of a seed, some time after the last fault: every placement is carried out, nothing is left behind."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from planner.core.knowledge.placement_waits import full_waits_text, recorded_waits
from planner.service import Planner
from propagator.core.live import LABEL_WORKLOAD
from sim.cluster import SimCluster
from spillway.events import PHASE_ACTIVE, STATE_DEPENDENCY_MISSING, STATE_ORPHANED, PlacementDecided
from spillway.model import ClusterSelector, Part
from spillway_simulation import members
from spillway_simulation.beliefs import waits_for_config
from spillway_simulation.brownfield import NAMESPACE, find_changed_objects
from spillway_simulation.brownfield_script import LOST, LOST_AND_BACK
from spillway_simulation.dependencies import find_unresolved_waits, lacks_any_object
from spillway_simulation.lending_script import MINE
from spillway_simulation.oracle import Known
from spillway_simulation.users import AS_DECLARED, User
from spillway_simulation.world import World

SURGE = re.compile(r"(\d+) surge pods? in (\S+)")
TIERS = ("own", "cloud")
"""The tiers of a policy that names none."""
BEGUN = re.compile(r"waits for (\S+)$")
"""The text of a roll that has begun and waits for its cluster."""
ELSEWHERE = re.compile(r"(\d+) replicas? that no longer fit in (\S+)")


def find_convergence_errors(world: World, users: list[User]) -> Iterator[str]:
    """Yields, in words, what has not converged yet; nothing when all has."""
    planner = world.active_planner()
    if planner is None:
        yield "no planner is active"
        return
    for user in users:
        if not user.done:
            yield f"{user.name}: no answer yet to {user.waits_for}"
    for user in users:
        yield from _convergence_errors_of_user(world, planner, user)
    for name, cluster in world.clusters.items():
        yield from _left_behind_objects(world, name, cluster)
    yield from find_changed_objects(world.clusters, world.untouched)
    yield from _wrongly_reported_orphans(world, planner)


def _convergence_errors_of_user(world: World, planner: Planner, user: User) -> Iterator[str]:
    known, expected = world.oracle.workloads.get((NAMESPACE, user.name)), user.expected
    in_state = planner.state.workloads.get((NAMESPACE, user.name))
    if not expected.exists:
        if in_state is not None and in_state.parts:
            yield f"{user.name}: deleted, and still in {sorted(in_state.parts)}"
        return
    if known is None or known.declared is None or known.placement is None or in_state is None:
        yield f"{user.name}: answered, and not in the log"
        return
    declared, placement = known.declared, known.placement
    if expected.taken_over and declared.disowning and not in_state.parts:
        if not _may_have_been_given_up(world, user.name):
            yield f"{user.name}: taken over, and given up"
        return
    follows = user.may_be_scaled or expected.replicas == AS_DECLARED
    replicas = declared.replicas if follows else expected.replicas
    if (declared.replicas, known.cpu, declared.deleting) != (replicas, expected.cpu, False):
        answered = f"{replicas} of {expected.cpu}m"
        yield f"{user.name}: {answered} were answered, {declared.replicas} of {known.cpu}m declared"
    if dict(in_state.parts) != {part.cluster: part for part in placement.parts}:
        yield f"{user.name}: the planner's state is not what it wrote"
    lacking = {name for name, cluster in world.clusters.items() if lacks_any_object(cluster, expected.needs)}
    if lacking:
        yield from find_unresolved_waits(world, planner, known, expected.needs)
    stands = (
        _is_rollout_without_room(world, planner, known) or _is_crowded_by_own_pods(world, placement) or bool(lacking)
    )
    wait = {name for name in lacking if _waits_for_deleted_object(world.clusters[name], user.name)}
    for part in placement.parts:
        if part.replicas_leaving and wait - {part.cluster}:
            continue  # They are removed when their replacements are ready, and those wait for a missing object.
        if part.cluster in lacking:
            yield from _convergence_errors_of_lacking_part(world.clusters[part.cluster], user, part)
            continue
        rolls_on = not stands and not declared.rollout_stopped_in
        yield from _convergence_errors_of_part(world.clusters[part.cluster], user, known, part, not rolls_on)
    if lacking:
        yield from _needless_waits(world, planner, known, lacking)
    if placement.unplaced and not stands:  # Otherwise parts grow only by their earlier template.
        # Once a rollout is stopped, parts grow by the template that they have.
        cpu = max([known.cpu, *(was for _, was in known.cpus if declared.rollout_stopped_in)])
        others = [name for _, name in world.oracle.workloads if name != declared.name]
        takes = _replicas_allowed_by_cluster(world, planner, known)
        held = {name: _cpu_of_held_surge_pods(planner, name, declared.name) for name in takes}
        room = {name: room_beside_rolls(world.clusters[name], others, cpu, held[name]) for name in takes}
        if any(room.values()):
            yield f"{user.name}: {placement.unplaced} wait ({full_waits_text(placement)}) while {room} would take more"


def _waits_for_deleted_object(cluster: SimCluster, name: str) -> bool:
    """Returns whether a bound pod of the workload waits for an object that was deleted after its template was
    written."""
    return any(waits_for_config(cluster, pod) for pod in members.pods_of(cluster, NAMESPACE, name))


def _may_have_been_given_up(world: World, name: str) -> bool:
    """Returns whether a user has deleted it by hand meanwhile, or its cluster was given up."""
    lost = {order.on for order in world.script.orders if order.verb in (LOST, LOST_AND_BACK)}
    found = {member for one in world.script.found if one.name == name for member, _ in one.replicas}
    return bool(found & lost) or any(whose == name for _, whose in world.oracle.hands)


def _wrongly_reported_orphans(world: World, planner: Planner) -> Iterator[str]:
    """Yields orphans that are not reported, and reported ones of which no Deployment and no ConfigMap is left."""
    listed = {name for name, view in planner.state.clusters.items() if view.joined}
    there = {
        (name, found["metadata"]["namespace"], found["metadata"]["name"])
        for name in listed
        for found in world.clusters[name].objects("deployments")
        if members.is_of_our_fleet(found) and world.oracle.ownership.is_orphan(name, found)
    }
    said = {
        (one.cluster, one.namespace, one.name) for one in planner.state.all_statuses() if one.state == STATE_ORPHANED
    }
    with_them = {
        (name, found["metadata"]["namespace"], found["metadata"]["labels"][LABEL_WORKLOAD])
        for name in listed
        for found in world.clusters[name].objects("configmaps")
        if members.is_of_our_fleet(found)
    }
    for one in sorted((there - said) | (said - there - with_them)):
        yield f"{one}: {'an orphan that is not reported' if one in there else 'reported as an orphan, and is none'}"


def _is_rollout_without_room(world: World, planner: Planner, known: Known) -> bool:
    """Returns whether a rollout has no room to go on in any of its clusters."""
    assert known.declared is not None
    assert known.placement is not None
    text, name = full_waits_text(known.placement), known.declared.name
    surges, others = SURGE.findall(text), ELSEWHERE.findall(text)
    rolls = any(_has_room_to_roll(world.clusters[cluster], name, known.cpu, int(count)) for count, cluster in surges)
    for count, cluster in others:
        takes = {
            other: more
            for other, more in _replicas_allowed_by_cluster(world, planner, known).items()
            if other != cluster
        }
        room = {
            other: min(more, members.room_for_pods(world.clusters[other], known.cpu)) for other, more in takes.items()
        }
        rolls |= sum(room.values()) >= int(count)
    begun = [cluster for cluster in BEGUN.findall(text) if cluster in world.clusters]
    rolls |= any(not is_begun_roll_stuck(world.clusters[cluster], name) for cluster in begun)
    return bool(surges or others or begun) and not rolls


def is_begun_roll_stuck(cluster: SimCluster, name: str) -> bool:
    """Returns whether a begun roll waits for pods without a node, and no node would take any of them now."""
    waiting = [pod for pod in members.pods_of(cluster, NAMESPACE, name) if not members.is_bound(pod)]
    return bool(waiting) and not any(
        members.room_for_pods(cluster, members.pod_cpu_millis(pod["spec"])) for pod in waiting
    )


def _is_crowded_by_own_pods(world: World, placement: PlacementDecided) -> bool:
    """Returns whether the cluster's own pods wait for room in a rollout's cluster. They take the room that it needs."""
    return recorded_waits(placement).rollout != "" and any(
        not members.is_bound(pod)
        for part in placement.parts
        for pod in members.pods_of(world.clusters[part.cluster], MINE, MINE)
    )


def _cpu_of_held_surge_pods(planner: Planner, cluster: str, name: str) -> Iterator[int]:
    """Yields the cpu of each surge pod held there for templates of other workloads that lack an object (ADR 26)."""
    for (_, other), workload in planner.state.workloads.items():
        said, part = workload.statuses.get(cluster), workload.parts.get(cluster)
        if other == name or part is None or said is None or said.state != STATE_DEPENDENCY_MISSING:
            continue
        template = workload.template_of(part)
        surge = min(planner.state.reservation_of(workload.workload_key, cluster).free, template.surge_of(part.replicas))
        yield from [dict(template.shape.requests)["cpu"]] * surge


def room_beside_rolls(cluster: SimCluster, others: Iterable[str], cpu: int, held_besides: Iterable[int] = ()) -> int:
    """How many more pods of this size a cluster takes, less the room that stuck rollouts of other workloads hold.

    held_besides: the cpu of each pod that is held besides.

    A stuck rollout holds what P4 and P5 say: for each old pod that runs the difference to a new one, and its surge
    pod, unless that fits on no node. A rollout is stuck where the cluster's own pods wait for a node, or where no node
    would take its waiting pod. Any other rollout goes on and holds nothing.
    """
    fits = members.room_of_each_node(cluster, cpu)
    crowded = any(not members.is_bound(pod) for pod in members.pods_of(cluster, MINE, MINE))
    standing = [name for name in others if crowded or is_begun_roll_stuck(cluster, name)]
    held = Counter((*held_besides, *(more for name in standing for more in _cpu_held_by_roll(cluster, name))))
    binding = {more: count for more, count in held.items() if members.room_for_pods(cluster, more) >= count}
    lost = sum(count * min(-(-more // cpu), max(fits, default=0)) for more, count in binding.items())
    return max(0, sum(fits) - lost)


def _cpu_held_by_roll(cluster: SimCluster, name: str) -> Iterator[int]:
    """Yields the cpu that a stuck roll holds: what each old pod lacks to a new one, and each waiting pod."""
    found = cluster.get_object("deployments", name, NAMESPACE)
    pods = members.pods_of(cluster, NAMESPACE, name)
    new = members.replica_cpu_millis(found) if found is not None else 0
    waiting = [new for pod in pods if not members.is_bound(pod) and members.pod_cpu_millis(pod["spec"]) == new]
    old = [new - members.pod_cpu_millis(pod["spec"]) for pod in pods if members.is_bound(pod)]
    if waiting and any(old):
        yield from (*waiting, *(more for more in old if more > 0))


def _has_room_to_roll(cluster: SimCluster, name: str, cpu: int, surge: int) -> bool:
    """Returns whether a roll of the running pods ends, on whichever nodes its pods are."""
    found = cluster.get_object("deployments", name, NAMESPACE)
    if found is None or members.room_for_pods(cluster, cpu) < surge:
        return False
    replicas, old = found["spec"]["replicas"], members.replica_cpu_millis(found)
    if cpu <= old or members.room_for_pods(cluster, cpu) >= replicas:
        return True
    places = members.room_for_pods(cluster, cpu, without=members.pods_of(cluster, NAMESPACE, name))
    return places >= int(replicas) + surge


def _needless_waits(world: World, planner: Planner, known: Known, lacking: set[str]) -> Iterator[str]:
    """Yields an error when replicas wait although a cluster has room and lacks nothing. It ends at the first tier with
    room: a missing object sends no replica to a later tier."""
    assert known.declared is not None
    assert known.placement is not None
    takes = _replicas_allowed_by_cluster(world, planner, known)
    room = {name: min(more, members.room_for_pods(world.clusters[name], known.cpu)) for name, more in takes.items()}
    for tier in _clusters_of_each_tier(world, known):
        free = {name: room[name] for name in tier if room.get(name) and name not in lacking}
        if known.placement.unplaced and free:
            waits = f"{known.placement.unplaced} wait ({full_waits_text(known.placement)})"
            yield f"{known.declared.name}: {waits}, and {free} lack nothing"
        if any(room.get(name) for name in tier):
            return


def _clusters_of_each_tier(world: World, known: Known) -> list[set[str]]:
    """Returns the clusters of each tier, in the order of the workload's policy."""
    assert known.declared is not None
    selectors = [tier.clusters for tier in known.declared.policy.tiers if not tier.node_groups]
    return [
        {one.name for one in world.script.members if _is_cluster_selected(one.name, one.tier, selector)}
        for selector in selectors
    ]


def _is_cluster_selected(name: str, tier: str, selector: ClusterSelector) -> bool:
    return name in selector.names if selector.names else not selector.tiers or tier in selector.tiers


def _replicas_allowed_by_cluster(world: World, planner: Planner, known: Known) -> dict[str, int]:
    """Returns the clusters that take new replicas of it, and how many more its policy allows there."""
    assert known.declared is not None
    parts = {part.cluster: part.replicas for part in known.placement.parts} if known.placement else {}
    most = {limit.cluster: limit.replicas_max for limit in known.declared.policy.limits if limit.replicas_max >= 0}
    more = {name: max(0, most[name] - parts.get(name, 0)) if name in most else sys.maxsize for name in world.clusters}
    active = {name for name, view in planner.state.clusters.items() if view.phase == PHASE_ACTIVE and view.joined}
    named = {name for tier in known.declared.policy.tiers for name in tier.clusters.names}
    taking = {member.name for member in world.script.members if member.tier in TIERS}
    active &= named or taking
    taken = {name for name in active if world.is_name_taken(name, known.declared.name)}
    return {name: count for name, count in more.items() if name in active - taken and count}


def has_name_clash(world: World) -> bool:
    """Returns whether any workload meets a foreign object of its name. The propagator tries that again from time to
    time."""
    return any(
        world.is_name_taken(cluster, name)
        for cluster in world.clusters
        for (_, name), known in world.oracle.workloads.items()
        if known.declared is not None and not known.declared.deleting and not known.declared.disowning
    )


def _convergence_errors_of_part(
    cluster: SimCluster, user: User, known: Known, part: Part, rollout_stands: bool
) -> Iterator[str]:
    """Yields errors of one part. rollout_stands: it may still have an earlier template, since the next has no room."""
    where = f"{user.name} in {part.cluster}"
    if part.replicas_lost:
        yield f"{where}: {part.replicas_lost} are still lost"
    if part.replicas_leaving:
        yield f"{where}: {part.replicas_leaving} are still leaving"
    if part.removing or part.adopting or part.disowning:
        yield f"{where}: still to be removed, taken over or given back"
        return
    found = cluster.get_object("deployments", user.name, NAMESPACE)
    if found is None:
        yield f"{where}: {part.replicas} placed, no object"
        return
    if members.version_of(found) != part.version:
        yield f"{where}: at version {members.version_of(found)}, not {part.version}"
    if found["spec"]["replicas"] != part.replicas:
        yield f"{where}: {found['spec']['replicas']} replicas, {part.replicas} decided"
    is_earlier = members.replica_cpu_millis(found) != known.cpu
    if is_earlier and not rollout_stands:
        yield f"{where}: {members.replica_cpu_millis(found)}m a replica, {known.cpu}m declared"
    bound = sum(members.is_bound(pod) for pod in members.pods_of(cluster, NAMESPACE, user.name))
    if bound != part.replicas:
        yield f"{where}: {bound} pods are bound, {part.replicas} decided"
    declared = known.declared  # Of a copy of the newest template it has the pods, and not yet what goes along.
    is_earlier |= rollout_stands and declared is not None and part.template_generation != declared.template_generation
    if user.expected.configured and not is_earlier:
        config = cluster.get_object("configmaps", f"{user.name}-config", NAMESPACE)
        if config is None or config["data"] != {"said": user.expected.configured}:
            yield f"{where}: its ConfigMap is {json.dumps(config and config['data'])}"


def _convergence_errors_of_lacking_part(cluster: SimCluster, user: User, part: Part) -> Iterator[str]:
    """Yields errors of a part whose cluster lacks an object: running pods stay, and no new ones are made or pending."""
    where = f"{user.name} in {part.cluster}"
    bound = sum(members.is_bound(pod) for pod in members.pods_of(cluster, NAMESPACE, user.name))
    if bound != part.replicas:
        yield f"{where}: {bound} pods are bound, {part.replicas} decided, and something is missing"
    if part.replicas_lost or part.replicas_leaving or part.removing:
        yield f"{where}: still to be moved or removed, and something is missing"


def _left_behind_objects(world: World, name: str, cluster: SimCluster) -> Iterator[str]:
    """Yields our objects, and their pods, that no placement lists."""
    for found in cluster.objects("deployments"):
        key = (found["metadata"]["namespace"], found["metadata"]["name"])
        known = world.oracle.workloads.get(key)
        listed = known.placement.parts if known is not None and known.placement is not None else ()
        orphan = world.oracle.ownership.is_orphan(name, found)
        if members.is_of_our_fleet(found) and not orphan and name not in {part.cluster for part in listed}:
            yield f"{'/'.join(key)} in {name}: an object that no placement lists"
    kept = {found["metadata"]["name"] for found in cluster.objects("deployments", NAMESPACE)}
    for pod in cluster.objects("pods", NAMESPACE):
        if pod["metadata"]["labels"].get("app") not in kept:
            yield f"{pod['metadata']['name']} in {name}: a pod whose Deployment is gone"
            return
