"""A running simulated cluster: owns the state, lets the controllers act in the event loop's time, and wakes watches."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Self

from sim.core.control_plane import ControlPlane
from sim.core.kinds import Object
from sim.core.load import load_objects
from sim.core.nodes import add_nodes, taint_object
from sim.core.requests import Api
from sim.core.saving import resume_state, saved_state
from sim.core.verbs import DeleteOptions
from sim.settings import Faults, LoadSpec, NodeSpec, Settings, SidecarSpec, Taint

_SHORTEST_NAP_SECONDS = 0.001


class SimCluster:
    """A simulated cluster. Use `async with`, or `start` and `close`; everything runs in the one event loop."""

    def __init__(self, name: str, settings: Settings | None = None, clock: Callable[[], float] | None = None) -> None:
        self.name = name
        self.settings = settings or Settings()
        self._clock = clock or asyncio.get_running_loop().time
        self.control_plane = ControlPlane(self.settings, Random(f"{self.settings.seed}/{name}"), self._clock())
        self.control_plane.on_write = self._on_write
        self.api = Api(self.control_plane)
        self.faults = Faults()
        self.token = "sim"
        """The token that a `SimTransport` must send. A new value revokes the tokens that exist."""
        self.stream_epoch = 0
        """A counter. Raising it ends every running stream."""
        self._work = asyncio.Event()
        self._faults_changed = asyncio.Event()
        self._wakers_by_plural: dict[str, dict[asyncio.Event, None]] = {}  # Dicts keep their order, so runs repeat.
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"sim {self.name}")

    async def close(self) -> None:
        """Ends the streams. Raises the error that ended the controllers, if there was one."""
        self.is_closed = True
        self.wake_streams()
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise

    def advance_clock(self) -> None:
        """Sets the time that objects get; every write from outside calls it first. Raises the controllers' error."""
        if self._task and self._task.done() and not self._task.cancelled():
            self._task.result()
        self.control_plane.world.now = max(self._clock(), self.control_plane.world.now)

    def objects(self, plural: str, namespace: str = "") -> list[Object]:
        """Returns objects without apiVersion and kind. The caller must not change them."""
        table = self.control_plane.world.store.tables[plural]
        return [found for key, found in table.items() if not namespace or key[0] == namespace]

    def get_object(self, plural: str, name: str, namespace: str = "") -> Object | None:
        return self.control_plane.world.store.get_object(plural, (namespace, name))

    def load_objects(self, nodes: Sequence[NodeSpec], pods: LoadSpec | None = None) -> None:
        """Adds nodes, and Deployments with running pods, without the work of controllers; for benches."""
        self.advance_clock()
        load_objects(self.control_plane, nodes, pods)

    def saved_state(self) -> dict[str, Any]:
        """Returns all objects as JSON values, for `resume_state`."""
        return saved_state(self.control_plane)

    def resume_state(self, content: dict[str, Any]) -> None:
        """Goes on with the objects that another cluster of this name saved. Call it first on this cluster."""
        self.advance_clock()
        resume_state(self.control_plane, content, Random(f"{self.settings.seed}/{self.name}/{content['version']}"))

    def restore_state(self, content: dict[str, Any]) -> None:
        """Goes back to a saved state, as with etcd from a backup: watches end, and versions go on from that state."""
        self.advance_clock()
        self.control_plane = ControlPlane(
            self.settings, Random(f"{self.settings.seed}/{self.name}/restored"), self._clock()
        )
        self.resume_state(content)
        self.control_plane.on_write = self._on_write
        self.api = Api(self.control_plane)
        self._work.set()
        self.drop_watches()

    def add_nodes(self, specs: Iterable[NodeSpec]) -> list[str]:
        self.advance_clock()
        return add_nodes(self.control_plane.world, specs)

    def remove_node(self, name: str) -> None:
        self.advance_clock()
        self.control_plane.garbage.delete_object("nodes", self._node(name), DeleteOptions().propagation)

    def cordon(self, name: str, *, unschedulable: bool = True) -> None:
        node = self._node(name)
        self._put_node_spec(node, {**(node.get("spec") or {}), "unschedulable": unschedulable})

    def taint(self, name: str, taint: Taint) -> None:
        node = self._node(name)
        spec = node.get("spec") or {}
        others = [one for one in spec.get("taints") or () if (one["key"], one["effect"]) != (taint.key, taint.effect)]
        self._put_node_spec(node, {**spec, "taints": [*others, taint_object(taint.key, taint.value, taint.effect)]})

    def untaint(self, name: str, key: str) -> None:
        node = self._node(name)
        spec = node.get("spec") or {}
        self._put_node_spec(node, {**spec, "taints": [one for one in spec.get("taints") or () if one["key"] != key]})

    def set_pod_usage(self, namespace: str, pod: str, amounts: Mapping[str, int] | None) -> None:
        """Sets the usage of a pod. None: the pod gets its share of the workload's load again.

        amounts: thousandths of a core for cpu, whole units for all other resources.
        """
        self.control_plane.usage.set_pod_usage(namespace, pod, amounts)

    def set_load(self, namespace: str, workload: str, amounts: Mapping[str, int] | None) -> None:
        """Sets the usage of all ready pods of a workload together, each with an equal part. None removes the load."""
        self.control_plane.usage.set_load(namespace, workload, amounts)

    def write_log(self, namespace: str, pod: str, text: str, container: str = "") -> None:
        """Writes lines to the log of a container, by default the first one. KeyError: no such pod or container."""
        self.advance_clock()
        found = self.control_plane.world.store.tables["pods"][namespace, pod]
        self.control_plane.logs.write_lines(found, container or found["spec"]["containers"][0]["name"], text)
        self._wake_streams_of("pods")

    def note_program_ended(self, pod: Object) -> None:
        """Notes that a pod's program has ended. A pod that is being deleted then ends at once."""
        self.advance_clock()
        metadata = pod["metadata"]
        self.control_plane.kubelet.on_program_ended((metadata["namespace"], metadata["name"]), metadata["uid"])
        self._work.set()

    def inject_sidecar(self, sidecar: SidecarSpec | None) -> None:
        """Adds this sidecar to every pod that is made from now on."""
        self.control_plane.world.sidecar = sidecar

    def set_faults(self, faults: Faults) -> None:
        self.faults = faults
        self._faults_changed.set()
        self._faults_changed = asyncio.Event()
        self.wake_streams()

    def drop_watches(self) -> None:
        """Ends every running stream cleanly, once."""
        self.stream_epoch += 1
        self.wake_streams()

    def expire_history(self) -> None:
        """Makes all versions before now too old, once. Running streams get an ERROR event of code 410."""
        self.control_plane.world.store.expire_history()
        self.api.lister.forget_snapshots()
        self.wake_streams()

    def restart_versions(self) -> None:
        """Numbers versions from 1 again, as if etcd was created from a copy of its data. The objects stay the same."""
        self.control_plane.world.store.restart_versions()
        self.api.lister.forget_snapshots()
        self.drop_watches()

    async def wait_for_fault_change(self) -> None:
        await self._faults_changed.wait()

    def add_waker(self, plural: str, waker: asyncio.Event) -> None:
        self._wakers_by_plural.setdefault(plural, {})[waker] = None

    def remove_waker(self, plural: str, waker: asyncio.Event) -> None:
        self._wakers_by_plural[plural].pop(waker, None)

    def wake_streams(self) -> None:
        for wakers in self._wakers_by_plural.values():
            for waker in wakers:
                waker.set()

    def _node(self, name: str) -> Object:
        return self.control_plane.world.store.tables["nodes"]["", name]

    def _put_node_spec(self, node: Object, spec: dict[str, Any]) -> None:
        self.advance_clock()
        self.control_plane.world.store.put_object("nodes", {**node, "spec": spec})

    def _on_write(self, plural: str) -> None:
        self._work.set()
        self._wake_streams_of(plural)

    def _wake_streams_of(self, plural: str) -> None:
        for waker in self._wakers_by_plural.get(plural, ()):
            waker.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._work.clear()
            now = self._clock()
            due = self.control_plane.run_step(now)
            if due is not None and due <= now:
                await asyncio.sleep(0)
                continue
            # A shorter wait may round to 0, and virtual time would never move.
            handle = None if due is None else loop.call_later(max(due - now, _SHORTEST_NAP_SECONDS), self._work.set)
            try:
                await self._work.wait()
            finally:
                if handle:
                    handle.cancel()
