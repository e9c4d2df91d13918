"""Carries out the faults of a script, and ends each one when its time is over."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

from sim.cluster import SimCluster
from sim.settings import Faults, NodeSpec
from spillway.lending_marks import LENDING
from spillway_simulation import members
from spillway_simulation.brownfield import NAMESPACE, request_by_hand
from spillway_simulation.lending_script import BATCHES, HANDS, POOL
from spillway_simulation.lending_state import lent_node_of, objects_by_key, register_of
from spillway_simulation.script import Fault
from spillway_simulation.world import World

COMPACTION_LAG_SECONDS = 30.0
LATE_PARTITIONS = 2
FIRST_WRITE_SECONDS = 20.0
"""A workload that no cluster was given by then is not waited for: it may have no room."""
MOVES_PODS = frozenset(
    {*HANDS, "quota", "node-gone", "node-cordoned", "pods-deleted", "replicas-changed", "object-deleted"}
)


class FaultInjector:
    """One per seed. run() ends when the last fault is over and every instance lives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.script.seed}/faults")
        self._at_members: Counter[tuple[str, str]] = Counter()
        self._away: Counter[str] = Counter()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for fault in self._world.script.faults:
                await asyncio.sleep(max(0.0, begun + fault.at - loop.time()))
                self._world.oracle.note_in_trace(f"fault {fault.kind} {fault.on} {fault.seconds:.3f}")
                if fault.kind in MOVES_PODS:
                    self._world.oracle.note_disturbance(fault.on)
                tasks.create_task(getattr(self, "_" + fault.kind.replace("-", "_"))(fault))

    # ── Instances ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _act_at_step(self, fault: Fault) -> bool:
        """Waits until the instance has run so many callbacks more. Whether it still lives then."""
        process = self._world.processes[fault.on]
        reached = asyncio.Event()
        world = self._world

        def act_on_process() -> None:
            if fault.kind == "kill":
                world.kill_process(process)
            elif fault.kind == "freeze":
                world.freeze_process(process, fault.seconds)
            reached.set()

        if process.is_over:
            return False
        world.loop.run_after_steps(process.owner, fault.steps, act_on_process)
        try:
            async with asyncio.timeout(10):
                await reached.wait()
        except TimeoutError:  # Such as of one that is frozen: killed once it wakes, it would never be started again.
            world.loop.forget_action(process.owner, act_on_process)
            return False
        return True

    async def _kill(self, fault: Fault) -> None:
        if await self._act_at_step(fault):
            await asyncio.sleep(fault.seconds)
            self._world.start_instance(fault.on)

    async def _freeze(self, fault: Fault) -> None:
        if await self._act_at_step(fault):
            await asyncio.sleep(fault.seconds)

    async def _freeze_before_write(self, fault: Fault) -> None:
        """Freezes the propagator that writes the Deployment `on` next: after its decision, before it sends the request.

        No freeze at a step hits that moment by chance: a propagator decides and sends in one callback.
        """
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{fault.on}"
        before_write = self._world.network.before_write
        frozen = asyncio.Event()

        def freeze_writer(owner: str) -> None:
            process = self._world.processes[owner.partition("#")[0]]
            if process.owner == owner:
                self._world.freeze_process(process, fault.seconds)
                self._world.oracle.seen["frozen before a write"] += 1
            frozen.set()

        before_write[path] = freeze_writer
        try:
            async with asyncio.timeout(FIRST_WRITE_SECONDS):
                await frozen.wait()
        except TimeoutError:
            before_write.pop(path, None)
        else:
            await asyncio.sleep(fault.seconds)

    async def _stop(self, fault: Fault) -> None:
        process = self._world.processes[fault.on]
        if not process.is_over:
            await self._world.stop_process(process)
            await asyncio.sleep(fault.seconds)
            self._world.start_instance(fault.on)

    async def _cut_off(self, fault: Fault) -> None:
        self._world.cut_off_process(self._world.processes[fault.on], fault.seconds)
        await asyncio.sleep(fault.seconds)

    async def _late(self, fault: Fault) -> None:
        partitions = self._random.sample(range(3), LATE_PARTITIONS)
        until = self._world.loop.time() + fault.seconds
        self._world.broker.delay_partitions(self._world.processes[fault.on].owner, partitions, until)
        await asyncio.sleep(fault.seconds)

    async def _again(self, fault: Fault) -> None:
        self._world.broker.deliver_records_again(self._world.processes[fault.on].owner, self._random.randint(1, 60))

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _log_away(self, fault: Fault) -> None:
        broker = self._world.broker
        self._away["log"] += 1
        broker.unavailable = True
        self._world.oracle.log.note_log_away(is_away=True)
        await asyncio.sleep(fault.seconds)
        self._away["log"] -= 1
        broker.unavailable = self._away["log"] > 0
        self._world.oracle.log.note_log_away(is_away=broker.unavailable)

    async def _write_unknown(self, fault: Fault) -> None:
        self._world.broker.fail_next_write(written=fault.steps % 2 == 0)

    async def _publish_unknown(self, fault: Fault) -> None:
        self._world.broker.fail_next_publish(written=fault.steps % 2 == 0)

    async def _compact(self, fault: Fault) -> None:
        self._world.broker.compact_records_older_than(COMPACTION_LAG_SECONDS)

    # ── The store ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _store_away(self, fault: Fault) -> None:
        self._away["store"] += 1
        self._world.store.available = False
        await asyncio.sleep(fault.seconds)
        self._away["store"] -= 1
        self._world.store.available = self._away["store"] == 0

    async def _store_flushed(self, fault: Fault) -> None:
        self._world.store.flush_all()

    # ── Members ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _apply_member_fault(self, fault: Fault) -> None:
        self._at_members[fault.on, fault.kind] += 1
        self._set_member_faults(fault.on)
        await asyncio.sleep(fault.seconds)
        self._at_members[fault.on, fault.kind] -= 1
        self._set_member_faults(fault.on)

    def _set_member_faults(self, member: str) -> None:
        def has_fault(kind: str) -> bool:
            return self._at_members[member, kind] > 0

        self._world.clusters[member].set_faults(
            Faults(
                silent=has_fault("silent"),
                unauthorized=has_fault("unauthorized"),
                garbage=has_fault("garbage"),
                stall_list=has_fault("stall-list"),
                latency_seconds=2.0 if has_fault("slow") else 0.0,
            )
        )
        self._world.oracle.log.note_silent_cluster(member, is_silent=has_fault("silent"))

    _silent = _slow = _unauthorized = _garbage = _stall_list = _apply_member_fault

    async def _flaky(self, fault: Fault) -> None:
        self._world.network.flaky[fault.on] = 0.3
        await asyncio.sleep(fault.seconds)
        self._world.network.flaky[fault.on] = 0.0

    async def _drop_watches(self, fault: Fault) -> None:
        self._world.clusters[fault.on].drop_watches()

    async def _expire_history(self, fault: Fault) -> None:
        self._world.clusters[fault.on].expire_history()

    async def _versions_back(self, fault: Fault) -> None:
        self._world.clusters[fault.on].restart_versions()
        self._world.oracle.sights.note_versions_restarted(fault.on, self._world.loop.time())

    async def _quota(self, fault: Fault) -> None:
        cluster, name = self._world.clusters[fault.on], f"few-{fault.number}"
        path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
        spec = {"hard": {"pods": str(fault.steps // 8)}}
        metadata = {"name": name, "namespace": NAMESPACE}
        request_by_hand(
            cluster, "POST", path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
        )
        await asyncio.sleep(fault.seconds)
        request_by_hand(cluster, "DELETE", f"{path}/{name}")

    async def _node_gone(self, fault: Fault) -> None:
        cluster = self._world.clusters[fault.on]
        name = self._any_node(cluster)
        if name:
            await self._replace_node(fault, name)

    async def _replace_node(self, fault: Fault, name: str) -> None:
        """Another node of its size comes in its place."""
        cluster = self._world.clusters[fault.on]
        record = cluster.control_plane.table.record_by_name[name]
        cpu = record.allocatable["cpu"]
        cluster.remove_node(name)
        self._world.oracle.note_allocatable_cpu()
        await asyncio.sleep(fault.seconds)
        cluster.add_nodes([NodeSpec(f"{name}-again-{fault.number}-", 1, cpu)])
        self._world.oracle.note_allocatable_cpu()

    async def _node_comes(self, fault: Fault) -> None:
        self._world.clusters[fault.on].add_nodes([NodeSpec(f"{fault.on}-late-{fault.number}-", 1, 2_000)])
        self._world.oracle.note_allocatable_cpu()

    async def _node_cordoned(self, fault: Fault) -> None:
        cluster = self._world.clusters[fault.on]
        name = self._any_node(cluster)
        if not name:
            return
        cluster.cordon(name)
        await asyncio.sleep(fault.seconds)
        if name in cluster.control_plane.table.record_by_name:
            cluster.cordon(name, unschedulable=False)

    async def _pods_deleted(self, fault: Fault) -> None:
        cluster = self._world.clusters[fault.on]
        pods = cluster.objects("pods", NAMESPACE)
        for pod in self._random.sample(pods, min(len(pods), 1 + fault.steps // 8)):
            request_by_hand(cluster, "DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")

    async def _replicas_changed(self, fault: Fault) -> None:
        self._change_any_object(fault, "PATCH", {"spec": {"replicas": fault.steps % 12}})

    async def _object_deleted(self, fault: Fault) -> None:
        self._change_any_object(fault, "DELETE", None)

    def _change_any_object(self, fault: Fault, method: str, body: Any) -> None:
        cluster = self._world.clusters[fault.on]
        ownership = self._world.oracle.ownership
        found = [one for one in cluster.objects("deployments", NAMESPACE) if members.is_of_our_fleet(one)]
        ours = [one for one in found if not ownership.is_orphan(fault.on, one)]
        if ours:
            name = self._random.choice(ours)["metadata"]["name"]
            self._world.oracle.hands.add((fault.on, name))
            request_by_hand(cluster, method, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}", body)

    # ── Nodes that are lent ─────────────────────────────────────────────────────────────────────────────────────

    async def _virtual_deleted(self, fault: Fault) -> None:
        pool = self._world.clusters[POOL]
        names = sorted(
            name
            for (_, name), node in objects_by_key(pool, "nodes").items()
            if (lent_node_of(node) or "")[:1] == (fault.on,)
        )
        if names:
            pool.remove_node(self._random.choice(names))

    async def _taint_removed(self, fault: Fault) -> None:
        name = self._any_marked_node(fault.on)
        if name and self._world.oracle.lending is not None:
            self._world.oracle.lending.note_tampered_node(fault.on, name)
            self._world.clusters[fault.on].untaint(name, LENDING)

    async def _pool_pods_deleted(self, fault: Fault) -> None:
        pool = self._world.clusters[POOL]
        pods = pool.objects("pods", BATCHES)
        for pod in self._random.sample(pods, min(len(pods), 1 + fault.steps // 8)):
            request_by_hand(pool, "DELETE", f"/api/v1/namespaces/{BATCHES}/pods/{pod['metadata']['name']}")

    async def _lent_node_gone(self, fault: Fault) -> None:
        name = self._any_marked_node(fault.on)
        if name:
            await self._replace_node(fault, name)

    def _any_marked_node(self, owner: str) -> str:
        """A node of the owner that bears the mark of lending; empty: none does."""
        registers = {
            name: register_of(node) for (_, name), node in objects_by_key(self._world.clusters[owner], "nodes").items()
        }
        names = sorted(name for name, found in registers.items() if found is not None and found.state)
        return self._random.choice(names) if names else ""

    def _any_node(self, cluster: SimCluster) -> str:
        nodes = objects_by_key(cluster, "nodes")
        names = sorted(name for _, name in nodes if lent_node_of(nodes["", name]) is None)
        return self._random.choice(names) if names else ""
