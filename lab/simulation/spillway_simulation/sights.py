"""Since when pods are bound in members, and which ones waited lately: looked at twice a second, in their stores."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sim.cluster import SimCluster
from sim.core.kinds import Object
from spillway_simulation.lending_state import ENDED, objects_by_key

SILENT_WATCH_SECONDS = 100.0
"""Where resource versions begin again, watches that are open say nothing for so long. Then collectors list anew."""

Key = tuple[str, str]
"""Namespace and name of the Deployment, which its pods bear as their label app."""


class Sights:
    """look() is called again and again; what was bound or waited between two looks was not seen."""

    def __init__(self, clusters: Mapping[str, SimCluster]) -> None:
        self._clusters = clusters
        self._bound_at: dict[str, dict[str, float]] = defaultdict(dict)
        self._waited_at: dict[tuple[str, Key], dict[str, float]] = defaultdict(dict)
        self._silent_until: dict[str, float] = {}

    def note_versions_restarted(self, cluster: str, now: float) -> None:
        self._silent_until[cluster] = now + SILENT_WATCH_SECONDS

    def may_watches_be_silent(self, cluster: str, now: float) -> bool:
        """Whether open watches of this cluster may miss what changes, since its resource versions began again."""
        return now < self._silent_until.get(cluster, now)

    def note_pods(self, now: float) -> None:
        for name, cluster in self._clusters.items():
            for key, pod in _living_pods(cluster):
                uid = pod["metadata"]["uid"]
                if pod["spec"].get("nodeName"):
                    self._bound_at[name].setdefault(uid, now)
                else:
                    self._waited_at[name, key][uid] = now

    def pods_bound_since(self, cluster: str, key: Key, at: float) -> int:
        """Pods that are bound now and were at that time."""
        bound_at = self._bound_at[cluster]
        return sum(
            whose == key and bound_at.get(pod["metadata"]["uid"], at + 1) <= at
            for whose, pod in _living_pods(self._clusters[cluster])
        )

    def last_binding_time(self, cluster: str) -> float:
        """The time at which a pod was last newly seen as bound in this cluster; below 0: none ever was."""
        return max(self._bound_at[cluster].values(), default=-1.0)

    def pods_waiting_since(self, cluster: str, key: Key, at: float) -> int:
        """Pods that had no node at that time or later, each once."""
        return sum(last >= at for last in self._waited_at[cluster, key].values())


def _living_pods(cluster: SimCluster) -> Iterator[tuple[Key, Object]]:
    """That have neither ended nor are to go."""
    for (namespace, _), pod in objects_by_key(cluster, "pods").items():
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata or (pod.get("status") or {}).get("phase") in ENDED:
            continue
        yield (namespace, (metadata.get("labels") or {}).get("app", "")), pod
