"""A list that a watch began anew with, by the nodes that it is about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from vk_bridge.core.selection.owner_cache import WatchedNode, WatchedPod

Part = Literal["node", "virtual", "own_pods", "pool_pods"]
NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Listing:
    """Of one part of what is known of nodes. versions: by node, real or virtual as the part is, by uid."""

    part: Part
    versions: Mapping[str, Mapping[str, str]]

    def of(self, node: str) -> Mapping[str, str]:
        return self.versions.get(node, NONE)


def nodes_listed(part: Part, nodes: Iterable[WatchedNode]) -> Listing:
    return Listing(part, {one.metadata.name: {one.metadata.uid: one.metadata.resource_version} for one in nodes})


def pods_listed(part: Part, pods: Iterable[WatchedPod]) -> Listing:
    """Those that are on a node; of a pool's pods no more is asked than where they are."""
    found: dict[str, dict[str, str]] = {}
    for pod in pods:
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = pod.metadata.resource_version
    return Listing(part, found)
