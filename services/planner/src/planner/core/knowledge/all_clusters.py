"""Keeps values of all clusters that each plan needs (joined clusters, their ages) until a cluster changes them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.core.manifests.policy import FleetClusters
from spillway.events import PHASE_ACTIVE, ClusterJoined
from spillway.feasibility.cluster_view import NEVER, ClusterView


class ChangeCounts:
    """Counts changes of clusters, so that a result can be kept while a count stays the same.

    nodes: grows when a cluster, its membership or its nodes changed. heard: grows with every message of a cluster, too.
    Both are None while changes are not counted.
    """

    def __init__(self) -> None:
        self.nodes: int | None = 0
        self.heard: int | None = 0

    def note_change(self, nodes: bool = True) -> None:
        if self.nodes is not None and self.heard is not None:
            self.nodes, self.heard = self.nodes + nodes, self.heard + 1

    def stop_counting(self) -> None:
        """Stops counting: from now on all clusters are looked at each time."""
        self.nodes = self.heard = None


class JoinedClusters:
    """Keeps the list of the fleet's clusters. seen: ChangeCounts.nodes; while it is the same, the list stays."""

    def __init__(self) -> None:
        self._seen: int | None = None
        self._of: list[ClusterJoined | None] = []
        self._found = FleetClusters()
        self._not_active: frozenset[str] = frozenset()

    def joined_clusters(self, views: Mapping[str, ClusterView], seen: int | None = None) -> FleetClusters:
        """Returns the clusters of the fleet by name."""
        self._refresh_clusters(views, seen)
        return self._found

    def inactive_clusters(self, views: Mapping[str, ClusterView], seen: int | None = None) -> frozenset[str]:
        """Returns the clusters that get no new replicas because of their phase."""
        self._refresh_clusters(views, seen)
        return self._not_active

    def _refresh_clusters(self, views: Mapping[str, ClusterView], seen: int | None) -> None:
        if seen is not None and seen == self._seen:
            return
        self._seen = seen
        found = [view.joined for view in views.values()]
        if found != self._of:
            there = (joined for joined in found if joined is not None)
            before, self._of = self._found, found
            self._found = FleetClusters(sorted(there, key=lambda joined: joined.cluster))
            self._found.take_index_of(before)
            self._not_active = frozenset(name for name, view in views.items() if view.phase != PHASE_ACTIVE)


def first_names_by_twin(views: Mapping[str, ClusterView]) -> dict[str, str]:
    """Returns, for each cluster that is another name of an API server, the first name of that API server.

    The nodes exist once, so they count under the first name only. The first name is the cluster whose ClusterJoined
    record has that API server; if no record has it, the name that joined first. The cluster's own report is not enough:
    with a false report, a cluster could take the place of another one.
    """
    names_by_server: dict[str, list[tuple[bool, int, str]]] = {}
    for name, view in views.items():
        if view.api_server and view.joined is not None:
            says_otherwise = view.joined.api_server != view.api_server
            names_by_server.setdefault(view.api_server, []).append((says_otherwise, view.joined.ordinal, name))
    several = (sorted(names) for names in names_by_server.values() if len(names) > 1)
    return {name: names[0][2] for names in several for *_, name in names[1:]}


def newly_known_api_servers(views: Mapping[str, ClusterView]) -> list[ClusterJoined]:
    """Returns new ClusterJoined records for clusters that report another API server than their record has.

    A cluster whose API server any other cluster reports, or has in its record, gets no new record.
    """
    said = [(view.api_server, view.joined) for view in views.values() if view.joined is not None]
    new = [(server, joined) for server, joined in said if server and joined.api_server != server]
    if not new:
        return []
    times = Counter(name for server, joined in said for name in {server, joined.api_server})
    return [replace(joined, api_server=server) for server, joined in new if times[server] == 1]


def mark_twins(views: Mapping[str, ClusterView]) -> tuple[dict[str, str], list[str]]:
    """Writes each cluster's twin into its view. Returns first_names_by_twin(), and the clusters whose twin changed."""
    found = first_names_by_twin(views)
    others = [name for name, view in views.items() if view.twin_of != found.get(name, "")]
    for name in others:
        views[name].twin_of = found.get(name, "")
        views[name].revision += 1
    return found, others


def has_heard_all_since(views: Mapping[str, ClusterView], since: float, now: float, age_max_seconds: float) -> bool:
    """Returns whether every fresh cluster has sent a message at the time `since` or later."""
    return all(
        now - (view.age_seconds(now) or 0.0) >= since
        for view in views.values()
        if view.joined is not None and not view.staleness_reason(now, age_max_seconds)
    )


def has_unheard_cluster(views: Mapping[str, ClusterView]) -> bool:
    """Returns whether no message of a cluster of the fleet was read yet, so that the cluster's age is unknown."""
    return any(view.joined is not None and view.heard_at == NEVER for view in views.values())


class ClusterAges:
    """Computes the ages of all clusters at once. The results equal those of ClusterView for one cluster.

    now: the moment that the ages are for. heard: ChangeCounts.heard; while it is the same, no cluster is read again.
    While `now` is also the same, nothing is computed again.
    """

    def __init__(self) -> None:
        self._seen: tuple[int | None, float, float] | None = None
        self._names: list[str] = []
        self._heard_at = self._said = self._ages = np.zeros(0)
        self._never = self._unsure = np.zeros(0, np.bool_)
        self._ages_ms: dict[str, int] | None = None
        self._not_fresh: frozenset[str] = frozenset()

    def ages_ms(
        self, views: Mapping[str, ClusterView], now: float, age_max_seconds: float, heard: int | None = None
    ) -> Mapping[str, int]:
        """Returns the ages by cluster in milliseconds; −1 if no message was ever read. Callers must not change them."""
        self._refresh_ages(views, now, age_max_seconds, heard)
        if self._ages_ms is None:
            self._ages_ms = dict(zip(self._names, self._ages.astype(np.int64).tolist(), strict=True))
        return self._ages_ms

    def clusters_not_fresh(
        self, views: Mapping[str, ClusterView], now: float, age_max_seconds: float, heard: int | None = None
    ) -> frozenset[str]:
        """Returns the clusters that get no new replicas because their capacity is unknown or too old."""
        self._refresh_ages(views, now, age_max_seconds, heard)
        return self._not_fresh

    def _refresh_ages(
        self, views: Mapping[str, ClusterView], now: float, age_max_seconds: float, number: int | None
    ) -> None:
        before, self._seen = self._seen, (number, now, age_max_seconds)
        if number is None or before is None or before[0] != number:
            self._read_reported_ages(views)
        elif before == self._seen:
            return
        ages = np.rint((self._said + (now - self._heard_at)) * 1000)
        ages[self._never] = NEVER
        # A rounded age near the limit may be on the wrong side of it. So these clusters are computed exactly.
        unsure = (ages < 0) | (ages > age_max_seconds * 1000 - 1) | self._unsure
        some = [self._names[index] for index in unsure.nonzero()[0].tolist()]
        self._not_fresh = frozenset(name for name in some if views[name].staleness_reason(now, age_max_seconds))
        self._ages, self._ages_ms = ages, None

    def _read_reported_ages(self, views: Mapping[str, ClusterView]) -> None:
        """Reads the age that each cluster reported, in seconds, and the time of the report."""
        entries = views.values()
        self._names = list(views)
        self._heard_at = np.array([view.heard_at for view in entries], float)
        said = np.array([view.age_ms for view in entries], float)
        self._said, self._never = said / 1000, (self._heard_at == NEVER) | (said == NEVER)
        self._unsure = np.array([view.is_incomplete or view.epoch < 0 for view in entries], np.bool_)
