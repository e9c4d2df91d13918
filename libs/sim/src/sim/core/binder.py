"""The scheduler's queue: the order and the rate of its pods, and the pods that wait until something changes."""

from collections import deque
from collections.abc import Mapping
from functools import partial

from sim.core.kinds import Key, Object
from sim.core.node_table import NodeTable
from sim.core.pods import bound_pod, unschedulable_pod
from sim.core.scheduling import Scheduler
from sim.core.shape import PodShape
from sim.core.world import World

_CATCH_UP_SECONDS = 0.1


class Binder:
    def __init__(self, world: World, table: NodeTable, scheduler: Scheduler) -> None:
        self._world = world
        self._table = table
        self._scheduler = scheduler
        self._queue: deque[tuple[Key, PodShape]] = deque()
        self.waiting: dict[PodShape, dict[Key, None]] = {}
        """Pods that fit on no node, by shape."""
        self._complaints: dict[Key, str] = {}
        self._message_by_shape: dict[PodShape, str] = {}
        self.assumed: dict[Key, str] = {}
        """The node of each pod whose binding is decided but not written yet. The node table counts them already."""
        self.retry = False
        self._next_bind_at = 0.0

    def enqueue_pod(self, key: Key, shape: PodShape) -> None:
        self._queue.append((key, shape))

    def forget_pod(self, key: Key, shape: PodShape) -> None:
        self._complaints.pop(key, None)
        pods = self.waiting.get(shape)
        if pods and key in pods:
            self._stop_waiting(key, shape)
        node = self.assumed.pop(key, None)
        if node:
            self._table.remove_pod(node, shape)

    def on_node_gone(self, name: str, shape_by_pod: Mapping[Key, PodShape]) -> None:
        for key in [key for key, node in self.assumed.items() if node == name]:
            del self.assumed[key]
            self.enqueue_pod(key, shape_by_pod[key])

    def on_pod_bound(self) -> None:
        if not self.retry and any(shape.looks_at_pods for shape in self.waiting):
            self.retry = True

    def schedule_pods(self, limit: int) -> int:
        """Schedules pods. Returns the approximate number of writes."""
        writes = 0
        while self._queue and writes < limit and self._may_bind():
            key, shape = self._queue.popleft()
            pod = self._pending_pod(key)
            if pod:
                writes += self._place_pod(key, shape, pod)
        if self.retry and not self._queue and writes < limit and self._may_bind():
            writes += self._retry_waiting_pods(limit - writes)
        while self._complaints and writes < limit:
            key = next(iter(self._complaints))
            writes += self._write_unschedulable(key, self._complaints.pop(key))
        return writes

    def next_run_at(self) -> float | None:
        if self._complaints:
            return self._world.now
        if not (self._queue or (self.retry and self.waiting)):
            return None
        return max(self._world.now, self._next_bind_at)

    def _may_bind(self) -> bool:
        return not self._world.settings.binds_per_second or self._next_bind_at <= self._world.now

    def _pending_pod(self, key: Key) -> Object | None:
        pod = self._world.store.get_object("pods", key)
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"] or key in self.assumed:
            return None
        return pod

    def _place_pod(self, key: Key, shape: PodShape, pod: Object) -> int:
        view = self._scheduler.view_of(shape)
        node = view.choose_node()
        if node:
            return self._bind_pod(key, shape, pod, node)
        already = self.waiting.setdefault(shape, {})
        message = self._message_by_shape.get(shape) if already else None
        already[key] = None
        self._message_by_shape[shape] = message = message or view.why_no_node_fits()
        self._complaints[key] = message
        return 1

    def _bind_pod(self, key: Key, shape: PodShape, pod: Object, node: str) -> int:
        settings = self._world.settings
        if settings.binds_per_second:
            start = max(self._next_bind_at, self._world.now - _CATCH_UP_SECONDS)
            self._next_bind_at = start + 1 / settings.binds_per_second
        if settings.bind_delay_seconds:
            self._table.add_pod(node, shape)
            self.assumed[key] = node
            uid = pod["metadata"]["uid"]
            self._world.run_after(settings.bind_delay_seconds, partial(self._write_binding, key, uid))
        else:
            self._world.store.put_object("pods", bound_pod(pod, node, self._world.timestamp()))
        return 1

    def _write_binding(self, key: Key, uid: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        node = self.assumed.get(key)
        if pod and node:
            self._world.store.put_object("pods", bound_pod(pod, node, self._world.timestamp()))

    def _retry_waiting_pods(self, limit: int) -> int:
        self.retry = False
        writes = 0
        for shape in list(self.waiting):
            view = self._scheduler.view_of(shape)
            while pods := self.waiting.get(shape):
                node = view.choose_node()
                if node is None:
                    self._update_message(shape, view.why_no_node_fits())
                    break
                if writes >= limit or not self._may_bind():
                    self.retry = True
                    return writes
                key = next(iter(pods))
                self._stop_waiting(key, shape)
                self._complaints.pop(key, None)
                pod = self._pending_pod(key)
                writes += self._bind_pod(key, shape, pod, node) if pod else 0
        return writes

    def _update_message(self, shape: PodShape, message: str) -> None:
        if self._message_by_shape.get(shape) != message:
            self._message_by_shape[shape] = message
            self._complaints.update(dict.fromkeys(self.waiting[shape], message))

    def _stop_waiting(self, key: Key, shape: PodShape) -> None:
        pods = self.waiting[shape]
        del pods[key]
        if not pods:
            del self.waiting[shape]
            self._message_by_shape.pop(shape, None)

    def _write_unschedulable(self, key: Key, message: str) -> int:
        pod = self._pending_pod(key)
        if pod is None:
            return 0
        self._world.store.put_object("pods", unschedulable_pod(pod, message, self._world.timestamp()))
        return 1
