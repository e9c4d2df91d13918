"""Watches an owner's nodes and pods, and keeps its OwnerCache up to date. Probes advance the idle time of nodes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from spillway import metrics
from spillway.clusters.api import (
    Change,
    ClusterApi,
    ClusterUnreachable,
    FollowingFailed,
    ListedObjects,
    ObjectRemoved,
    ObjectUpserted,
    Probe,
    StreamAlive,
)
from spillway.kubernetes.objects import Kind
from vk_bridge.core.selection.owner_cache import WATCHED_NODES, WATCHED_PODS, OwnerCache
from vk_bridge.settings import VkBridgeSettings

KINDS: Final = (WATCHED_NODES, WATCHED_PODS)
log = structlog.get_logger()


class ClusterWatch:
    """The watches of one owner.

    touched: is called with the nodes that a change is about, and with the change.
    listed: is set when the nodes and the pods have been listed once.
    """

    def __init__(
        self,
        api: ClusterApi,
        owner_cache: OwnerCache,
        settings: VkBridgeSettings,
        touched: Callable[[Iterable[str], Change], None],
    ) -> None:
        self.listed = asyncio.Event()
        self._api = api
        self._owner_cache = owner_cache
        self._settings = settings
        self._touched = touched
        self._heard_at: dict[Kind, float] = {}
        self._failing: set[Kind] = set()
        self._listed_kinds: set[Kind] = set()
        self._differs_since: float | None = None
        self._streams: dict[Kind, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._start_streams(group)
            group.create_task(self._probe_cluster(group))

    def _start_streams(self, group: asyncio.TaskGroup) -> None:
        for kind in KINDS:
            if kind in self._streams:
                self._streams[kind].cancel()
            self._streams[kind] = group.create_task(self._follow_kind(kind), name=f"{kind.plural} of {self._api.name}")

    async def _follow_kind(self, kind: Kind) -> None:
        async for batch in self._api.follow_objects(kind):
            for change in batch:
                self._handle_change(kind, change)

    def _handle_change(self, kind: Kind, change: Change) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(change, FollowingFailed):
            self._failing.add(kind)
            metrics.CLUSTER_UNREACHABLE.labels(change.error.reason).inc()
            log.warning(
                "a cluster cannot be followed", cluster=self._api.name, kind=kind.plural, error=str(change.error)
            )
            return
        self._failing.discard(kind)
        self._heard_at[kind] = now
        self._touched(self._apply_to_cache(kind, change, now), change)
        if isinstance(change, ListedObjects):
            self._listed_kinds.add(kind)
            if len(self._listed_kinds) == len(KINDS):
                self.listed.set()

    def _apply_to_cache(self, kind: Kind, change: Change, now: float) -> Iterable[str]:
        owner_cache, of_nodes = self._owner_cache, kind is WATCHED_NODES
        match change:
            case ListedObjects(objects):
                return owner_cache.replace_nodes(objects, now) if of_nodes else owner_cache.replace_pods(objects, now)
            case ObjectUpserted(found):
                return owner_cache.put_node(found, now) if of_nodes else owner_cache.put_pod(found, now)
            case ObjectRemoved(found):
                return {owner_cache.drop_node(found.metadata.name)} if of_nodes else owner_cache.drop_pod(found, now)
            case StreamAlive() if not of_nodes:
                owner_cache.idleness.forget_gone()
        return ()

    async def _probe_cluster(self, group: asyncio.TaskGroup) -> None:
        """Counts the cluster's nodes and pods at intervals, each time with one probe.

        If the cache has the same counts and both streams are alive, the idle time advances to the start of the probe.
        """
        loop = asyncio.get_running_loop()
        await self.listed.wait()
        while True:
            started_at = loop.time()
            try:
                probe = await self._api.count_nodes_and_pods()
            except ClusterUnreachable as error:
                metrics.CLUSTER_UNREACHABLE.labels(error.reason).inc()
            else:
                self._compare_probe_with_cache(probe, group, loop.time())
            await asyncio.sleep(max(0.001, started_at + self._settings.probe_seconds - loop.time()))

    def _compare_probe_with_cache(self, probe: Probe, group: asyncio.TaskGroup, now: float) -> None:
        if (probe.nodes, probe.pods) != (self._owner_cache.node_count, self._owner_cache.pod_count):
            since = self._differs_since = now if self._differs_since is None else self._differs_since
            if now - since >= self._settings.count_differs_seconds:
                log.warning(
                    "the count of a probe differs from ours: the objects are listed again", cluster=self._api.name
                )
                self._differs_since = None
                self._start_streams(group)
            return
        self._differs_since = None
        silence = self._settings.stream_silence_seconds
        if not self._failing and all(now - self._heard_at[kind] <= silence for kind in KINDS):
            self._owner_cache.idleness.advance_watermark(probe.started_at)
