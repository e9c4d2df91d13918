"""Remembers which namespaces one cluster has and which it lacks, from its answers."""

from collections.abc import Callable


class ClusterNamespaces:
    """The namespaces of one cluster.

    A namespace that was seen counts as there until a creation in it shows that it is gone. One that the cluster lacked
    counts as missing for missing_seconds, or until it is seen.
    """

    def __init__(self, clock: Callable[[], float], missing_seconds: float) -> None:
        self._clock = clock
        self._missing_seconds = missing_seconds
        self._seen: set[str] = set()
        self._missing_since: dict[str, float] = {}

    def has_namespace(self, name: str) -> bool:
        """Returns whether the namespace was seen, and nothing has shown since that it is gone."""
        return name in self._seen

    def lacks_namespace(self, name: str) -> bool:
        """Returns whether the cluster answered, at most missing_seconds ago, that it lacks the namespace."""
        since = self._missing_since.get(name)
        return since is not None and self._clock() - since < self._missing_seconds

    def note_namespace_existing(self, name: str) -> None:
        """Records that the namespace exists, so that it need not be created or looked up."""
        self._seen.add(name)
        self._missing_since.pop(name, None)

    def note_namespace_missing(self, name: str) -> None:
        """Records that the cluster lacks the namespace, by its answer, for missing_seconds."""
        self._missing_since = {
            known: since for known, since in self._missing_since.items() if self.lacks_namespace(known)
        }
        self._missing_since[name] = self._clock()

    def forget_namespace(self, name: str) -> None:
        """Forgets that the namespace exists, because it may be gone."""
        self._seen.discard(name)
