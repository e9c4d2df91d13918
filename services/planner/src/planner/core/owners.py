"""Whose word of a cluster counts: its propagator's of the newest turn, and for good once the log behind it was read."""

from spillway.events import WorkloadObserved

Place = tuple[str, str, str]
Words = dict[Place, WorkloadObserved]
"""By namespace, name and cluster."""


class Owners:
    """The epochs of propagators at clusters, as far as they were read, and which of their words something may hang on
    that cannot be taken back (the state table: docs/turns.md).

    A claim and a status lie in different partitions, so a status of a turn that is over may be read before the claim
    that ended it. So a word settles something only once all of the log that stood there when it was known has been
    read, and no later claim was in it. asked: the words that somebody waits to be proven so.
    """

    def __init__(self) -> None:
        self.asked: Words = {}
        self._epochs: dict[str, int] = {}
        self._proven: Words = {}

    def heard(self, cluster: str, epoch: int) -> None:
        """A claim of this epoch was read, or a record that bears it."""
        self._epochs[cluster] = max(epoch, self._epochs.get(cluster, epoch))

    def is_present(self, said: WorkloadObserved) -> bool:
        """Whether no later turn at its cluster is known."""
        return said.epoch >= self._epochs.get(said.cluster, said.epoch)

    def settles(self, said: WorkloadObserved) -> bool:
        """Whether what cannot be taken back may follow from it. If only the proof is missing, it is asked for."""
        if not self.is_present(said):
            return False
        place = (said.namespace, said.name, said.cluster)
        if self._proven.get(place) is said:
            return True
        self.asked[place] = said
        return False

    def take_asked(self) -> Words:
        """The words to prove next: those that were asked about since the last time."""
        asked, self.asked = self.asked, {}
        return asked

    def prove(self, words: Words) -> None:
        """All that stood in workload-status when these were taken has been read since. What was proven before and did
        not serve by now is asked about again if need be."""
        self._proven = words
