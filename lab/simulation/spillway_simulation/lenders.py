"""Who lends and who wants nodes: what is said of lending, the owners' own pods, and those of the pool."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from random import Random

from sim.cluster import SimCluster
from spillway.api import RequestError
from spillway.api_lending import (
    DeclareLendingRequest,
    PauseLendingRequest,
    RecallRequest,
    ResumeLendingRequest,
    WithdrawLendingRequest,
)
from spillway.events_lending import LendingRule, NodeLent
from spillway.lending_marks import CHECKING, LENT, POD_NAMESPACE_PREFIX, POOL_TAINT, POOL_UID
from spillway.lending_marks import POOL as POOL_KEY
from spillway_local.fleet_plan import deployment
from spillway_simulation import members
from spillway_simulation.brownfield import request_by_hand
from spillway_simulation.lending_oracle import LendingOracle
from spillway_simulation.lending_script import (
    BATCH,
    BATCHES,
    DECLARE,
    MINE,
    PAUSE,
    POOL,
    RECALL,
    RESUME,
    WITHDRAW,
)
from spillway_simulation.lending_state import (
    ENDED,
    OWNED,
    Real,
    Register,
    Virtual,
    is_real_pod,
    iterate_virtual_nodes,
    objects_by_key,
    register_of,
)
from spillway_simulation.script import Said, Wanted
from spillway_simulation.users import ask_until_answered
from spillway_simulation.world import World

DECLARED_WITHIN_SECONDS = 120.0
AGAIN_SECONDS = 3.0
NONE = Register(OWNED, None)
CLOUD = "cloud"
"""A policy without tiers gets the default ones; this is the last of them."""
KEY = "key"
"""The Secret that the pool's pods need."""


class Lenders:
    """run() ends when all was said; a declaration is tried until its clusters are in the fleet."""

    def __init__(self, world: World) -> None:
        assert world.script.lending is not None
        self._world = world
        self._lending = world.script.lending
        self._random = Random(f"{world.script.seed}/lenders")

    async def run(self) -> None:
        begun = self._world.loop.time()
        timed: list[Said | Wanted] = sorted((*self._lending.said, *self._lending.wanted), key=lambda one: one.at)
        queues: dict[str, asyncio.Queue[Said | None]] = {owner: asyncio.Queue() for owner in self._lending.owners}
        async with asyncio.TaskGroup() as tasks:
            for queue in queues.values():
                tasks.create_task(self._say_one_by_one(queue))
            for one in timed:
                await asyncio.sleep(max(0.0, begun + one.at - self._world.loop.time()))
                if isinstance(one, Wanted):
                    self._scale_wanted_pods(one)
                else:
                    queues[one.owner].put_nowait(one)
            for queue in queues.values():
                queue.put_nowait(None)

    def _scale_wanted_pods(self, wanted: Wanted) -> None:
        self._world.oracle.note_in_trace(f"wanted {wanted}")
        name = BATCHES if wanted.pods == BATCH else MINE
        scale_deployment_by_hand(self._world.clusters[wanted.cluster], name, wanted)
        self._world.oracle.note_disturbance(wanted.cluster)

    async def _say_one_by_one(self, queue: "asyncio.Queue[Said | None]") -> None:
        """One thing after the other of each owner, as a person does it."""
        while (said := await queue.get()) is not None:
            await self._say_until_answered(said)

    async def _say_until_answered(self, said: Said) -> None:
        until = self._world.loop.time() + DECLARED_WITHIN_SECONDS
        request = self._request_of_said(said)
        while self._world.loop.time() < until:
            self._world.oracle.note_in_trace(f"says {said.verb} of {said.owner}")
            try:
                await ask_until_answered(self._world, self._random, _VERBS[said.verb], request, of="descheduler")
            except RequestError as error:
                self._world.oracle.note_in_trace(f"answer {said.verb} of {said.owner} {error.code}")
                if said.verb != DECLARE:
                    return
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._world.oracle.note_in_trace(f"answer {said.verb} of {said.owner} OK")
            return

    def _request_of_said(self, said: Said) -> object:
        lending, owner = self._lending, said.owner
        if said.verb == WITHDRAW:
            return WithdrawLendingRequest(owner, "no more")
        if said.verb == PAUSE:
            return PauseLendingRequest(owner, "for a while")
        if said.verb == RESUME:
            return ResumeLendingRequest(owner)
        if said.verb == RECALL:
            return RecallRequest(owner, reason="all of them")
        rule = LendingRule("all", (), "idle", lending.share_percent, lending.reserve_nodes, lending.idle_seconds, 0.0)
        return DeclareLendingRequest(owner, POOL, (rule,), lending.grace_seconds, lending.cooldown_seconds)


_VERBS = {
    DECLARE: "declare_lending",
    WITHDRAW: "withdraw_lending",
    PAUSE: "pause_lending",
    RESUME: "resume_lending",
    RECALL: "recall",
}


def scale_deployment_by_hand(cluster: SimCluster, name: str, wanted: Wanted) -> None:
    """A Deployment that its people have in a cluster, made at the first time."""
    path = f"/apis/apps/v1/namespaces/{name}/deployments"
    if cluster.get_object("deployments", name, name) is not None:
        request_by_hand(cluster, "PATCH", f"{path}/{name}", {"spec": {"replicas": wanted.replicas}})
        return
    request_by_hand(
        cluster, "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    manifest = json.loads(deployment(name, name, wanted.replicas, cpu=f"{wanted.cpu}m", memory="64Mi"))
    if name == BATCHES:
        pod = manifest["spec"]["template"]["spec"]
        pod["tolerations"] = [{"key": POOL_TAINT, "operator": "Exists"}]
        pod["volumes"] = [{"name": "key", "secret": {"secretName": KEY}}]
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": KEY}, "data": {"token": "Zmlyc3Q="}}
        request_by_hand(cluster, "POST", f"/api/v1/namespaces/{name}/secrets", secret)
    request_by_hand(cluster, "POST", path, manifest)


# ── When all is over ────────────────────────────────────────────────────────────────────────────────────────────────


def find_unsettled_lending(world: World) -> Iterator[str]:
    """What of lending is not yet as it should be, in words: asked back and not back, left behind, waiting for lent."""
    oracle, lending = world.oracle.lending, world.script.lending
    if oracle is None or lending is None:
        return
    virtuals = dict(iterate_virtual_nodes(world.clusters[POOL]))
    pool_is_there = POOL in oracle.joined
    for owner in lending.owners:
        if owner in oracle.joined:
            yield from _unsettled_in_owner(world, oracle, owner, virtuals, pool_is_there=pool_is_there)
    yield from _unsettled_recalls(oracle)
    yield from _unfounded_needs(world)
    for real, virtual in virtuals.items():
        if pool_is_there and real[0] in oracle.joined and _loan_state(world, real) in ("", CHECKING):
            yield f"{virtual.name}: a virtual node of a node that is not lent"
    if pool_is_there:
        yield from _stray_pool_pods(world, oracle)


def _unsettled_in_owner(
    world: World, oracle: LendingOracle, owner: str, virtuals: Mapping[Real, Virtual], *, pool_is_there: bool
) -> Iterator[str]:
    assert world.script.lending is not None
    cluster = world.clusters[owner]
    withdrawn = owner in world.script.lending.withdrawn or not pool_is_there
    for (_, name), node in objects_by_key(cluster, "nodes").items():
        found, real = register_of(node), (owner, name)
        said, virtual = oracle.last_loan_event(real), virtuals.get(real)
        if found is None or found.state == OWNED:
            if isinstance(said, NodeLent):
                yield f"{owner}/{name}: the log says that it is lent, and it is not"
        elif withdrawn or found.state != LENT:
            yield f"{owner}/{name}: still {found.state}"
        elif virtual is None or not virtual.open or virtual.loan != found.loan:
            yield f"{owner}/{name}: lent, and its virtual node is {virtual}"
        elif not isinstance(said, NodeLent) or said.loan != found.loan:
            yield f"{owner}/{name}: lent by loan {found.loan}, and the log says {said}"
    waiting = [pod["metadata"]["name"] for pod in cluster.objects("pods", MINE) if not members.is_bound(pod)]
    lent = [name for (_, name), node in objects_by_key(cluster, "nodes").items() if (register_of(node) or NONE).state]
    if waiting and lent:
        yield f"{owner}: {waiting} wait, and {lent} are lent"
    yield from _leftovers_of_pool(world, owner)


def _leftovers_of_pool(world: World, owner: str) -> Iterator[str]:
    """Of the pool's, in their owner: each has its pool pod, bound to the node's virtual node."""
    cluster = world.clusters[owner]
    there = {pod["metadata"]["uid"] for pod in objects_by_key(world.clusters[POOL], "pods").values()}
    pods = [pod for pod in objects_by_key(cluster, "pods").values() if is_real_pod(pod)]
    for pod in pods:
        if pod["metadata"]["labels"][POOL_UID] not in there:
            yield f"{owner}: {pod['metadata']['name']} runs, and its pool pod is gone"
    if not pods:
        for (namespace, name), secret in objects_by_key(cluster, "secrets").items():
            if POOL_KEY in (secret["metadata"].get("labels") or {}):
                yield f"{owner}: Secret {namespace}/{name} of a pool is left behind"
        for _, name in objects_by_key(cluster, "namespaces"):
            if name.startswith(POD_NAMESPACE_PREFIX):
                yield f"{owner}: namespace {name} is left behind"


def _stray_pool_pods(world: World, oracle: LendingOracle) -> Iterator[str]:
    """That are bound to a virtual node: the node is there, and they run on the real one or say why not."""
    nodes = {name for _, name in objects_by_key(world.clusters[POOL], "nodes")}
    for pod in objects_by_key(world.clusters[POOL], "pods").values():
        node, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
        owner = (node or "").partition(".")[0]
        ended = (pod.get("status") or {}).get("phase") in ENDED
        if node and node not in nodes and owner in oracle.joined and not ended:
            yield f"{name}: bound to {node}, which is gone"
        elif node and owner in oracle.joined and pod["metadata"].get("deletionTimestamp"):
            yield f"{name}: still being deleted on {node}"


def _unsettled_recalls(oracle: LendingOracle) -> Iterator[str]:
    for (owner, node), recall in oracle.recalls.items():
        if owner in oracle.joined:
            yield f"{owner}/{node}: recalled ({recall.cause}, loan {recall.loan}), and that is not settled"


def _loan_state(world: World, real: Real) -> str:
    found = register_of(objects_by_key(world.clusters[real[0]], "nodes").get(("", real[1])))
    return found.state if found is not None else ""


def _unfounded_needs(world: World) -> Iterator[str]:
    """Who is said to wait for lent nodes waits for a place, or has replicas in a later tier, which go home."""
    own = {member.name for member in world.script.members if member.tier != CLOUD}
    for (cluster, key), count in world.oracle.needs.replicas_needed_by_place().items():
        known = world.oracle.workloads.get(key)
        placement = known.placement if known is not None else None
        if placement is None or cluster not in own or placement.unplaced:
            continue
        if not any(part.replicas and part.cluster not in own for part in placement.parts):
            yield f"{'/'.join(key)}: {count} are said to wait for lent nodes of {cluster}, and all have a place"
