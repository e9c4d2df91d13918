"""Groups the objects of a list, with which a watch begins, by their nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from vk_bridge.core.selection.owner_cache import WatchedNode, WatchedPod

Part = Literal["node", "virtual", "own_pods", "pool_pods"]
NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one list, grouped by node.

    part: the kind and the cluster of the objects.
    versions: for each real or virtual node (depending on part), the resourceVersion of each object by uid.
    """

    part: Part
    versions: Mapping[str, Mapping[str, str]]

    def version_by_uid(self, node: str) -> Mapping[str, str]:
        return self.versions.get(node, NONE)


def listing_of_nodes(part: Part, nodes: Iterable[WatchedNode]) -> Listing:
    return Listing(part, {one.metadata.name: {one.metadata.uid: one.metadata.resource_version} for one in nodes})


def listing_of_pods(part: Part, pods: Iterable[WatchedPod]) -> Listing:
    """Returns a Listing of the pods that are on a node.

    The watch of a pool delivers only the metadata and the node of each pod, which is enough for a Listing.
    """
    found: dict[str, dict[str, str]] = {}
    for pod in pods:
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = pod.metadata.resource_version
    return Listing(part, found)
