"""Reports the use of a cluster's nodes: at each change, and at regular intervals with measured values."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from spillway.clusters.api import ClusterApi, ClusterUnreachable
from spillway.events_lending import NodeUsed
from spillway.model import Generation
from vk_bridge.core.node.usage import ClusterUsage, measured_amounts
from vk_bridge.core.selection.desired_loans import DesiredLoans
from vk_bridge.core.selection.owner_cache import OwnerCache
from vk_bridge.settings import VkBridgeSettings

log = structlog.get_logger()

LOOKS_MISSED_MAX = 2
"""If more regular reports of a node than this are missed in a row, the node counts as not observed in that time."""


class UsageReporter:
    """Reports the use of one cluster's nodes. wall_ms: Unix time, by which hours are counted."""

    def __init__(
        self,
        api: ClusterApi,
        owner_cache: OwnerCache,
        desired_loans: DesiredLoans,
        settings: VkBridgeSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self._api = api
        self._answer_seconds = settings.metrics_answer_seconds
        self._used: Mapping[str, Mapping[str, int] | None] = {}
        self._trouble = ""
        self._owner_cache = owner_cache
        self._desired_loans = desired_loans
        self._wall_ms = wall_ms
        self._usage = ClusterUsage(quiet_ms_max=round(settings.usage_seconds * (LOOKS_MISSED_MAX + 1) * 1000))

    def note_node_use(self, node: str) -> None:
        """Takes the current use of a node, after an event of the node or of one of its pods."""
        known = self._owner_cache.nodes.get(node)
        if known is None:
            self._usage.forget_node(node)
            return
        rule = self._desired_loans.lending_rule_for_labels(dict(known.labels)).name
        use = self._owner_cache.node_use(node, rule)
        self._usage.note_use(node, use if use.lent else replace(use, used=self._used.get(node)), self._wall_ms())

    async def take_hours(self, next_generation: Callable[[], Generation]) -> list[NodeUsed]:
        """Measures the use of all nodes. Returns the records of the hours that are over."""
        self._used = await self._read_use_by_node()
        for node in self._owner_cache.nodes:
            self.note_node_use(node)
        return self._usage.take_hours(self._api.name, self._wall_ms(), next_generation)

    async def _read_use_by_node(self) -> Mapping[str, Mapping[str, int] | None]:
        """Returns the measured use by node; empty if metrics.k8s.io does not answer. Then only requests are known."""
        trouble, before = "", self._trouble
        try:
            return {
                one.metadata.name: measured_amounts(one.usage)
                for one in await self._api.node_metrics(self._answer_seconds)
            }
        except ClusterUnreachable as error:
            trouble = error.reason
            if trouble != before:
                log.info("the use of nodes is not measured", cluster=self._api.name, error=str(error))
            return {}
        finally:
            self._trouble = trouble
