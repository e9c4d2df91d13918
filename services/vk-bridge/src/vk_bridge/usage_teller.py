"""Tells what a cluster's nodes are used for: at each change, and at least at each look."""

from collections.abc import Callable

from spillway.events_lending import NodeUsed
from spillway.model import Generation
from vk_bridge.core.owner_mirror import OwnerMirror
from vk_bridge.core.usage import Usage
from vk_bridge.core.wishes import Wishes
from vk_bridge.settings import Settings

LOOKS_MISSED_MAX = 2
"""A node of which so many looks are missing was not observed meanwhile."""


class UsageTeller:
    """Of one cluster. wall_ms: Unix time; hours are those of the clock."""

    def __init__(
        self, cluster: str, mirror: OwnerMirror, wishes: Wishes, settings: Settings, wall_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._wishes = wishes
        self._wall_ms = wall_ms
        self._usage = Usage(quiet_ms_max=round(settings.usage_seconds * (LOOKS_MISSED_MAX + 1) * 1000))

    def note(self, node: str) -> None:
        """Something about it, or about a pod on it, was heard."""
        known = self._mirror.nodes.get(node)
        if known is None:
            self._usage.gone(node)
            return
        rule = self._wishes.rule(dict(known.labels)).name
        self._usage.see(node, self._mirror.use(node, rule), self._wall_ms())

    def take(self, next_generation: Callable[[], Generation]) -> list[NodeUsed]:
        """A look at all nodes; the hours that are over."""
        for node in self._mirror.nodes:
            self.note(node)
        return self._usage.take_hours(self._cluster, self._wall_ms(), next_generation)
