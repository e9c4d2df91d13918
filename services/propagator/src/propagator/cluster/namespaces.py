"""Which namespaces one cluster has, as far as its answers told."""

from collections.abc import Callable


class Namespaces:
    """Those that were seen: nobody looks again before one turns out to be gone, when something is to be created there.
    And those that the cluster said it has not: that is believed for missing_seconds, or until one is seen.
    """

    def __init__(self, clock: Callable[[], float], missing_seconds: float) -> None:
        self._clock = clock
        self._missing_seconds = missing_seconds
        self._seen: set[str] = set()
        self._missing_since: dict[str, float] = {}

    def has(self, name: str) -> bool:
        return name in self._seen

    def lacks(self, name: str) -> bool:
        since = self._missing_since.get(name)
        return since is not None and self._clock() - since < self._missing_seconds

    def note(self, name: str) -> None:
        """It is there."""
        self._seen.add(name)
        self._missing_since.pop(name, None)

    def note_missing(self, name: str) -> None:
        """The cluster said that it has none of this name."""
        self._missing_since = {known: since for known, since in self._missing_since.items() if self.lacks(known)}
        self._missing_since[name] = self._clock()

    def doubt(self, name: str) -> None:
        """It may be gone."""
        self._seen.discard(name)
