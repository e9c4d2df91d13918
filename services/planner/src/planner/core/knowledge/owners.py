"""Tells which statuses of a cluster the planner may decide on: those proven to be of its propagator's newest turn."""

from spillway.events import WorkloadObserved

Place = tuple[str, str, str]
Words = dict[Place, WorkloadObserved]
"""Statuses by namespace, name and cluster."""


class PropagatorEpochs:
    """The newest known epoch of the propagator at each cluster, and the statuses that are proven to be of it.

    Only a proven status may lead to a decision that cannot be taken back (the state table: docs/turns.md). A claim and
    a status lie in different partitions, so the planner may read a status of an ended turn before it reads the claim
    that ended the turn. A status is proven once the planner has read all of the log that stood there when it knew the
    status, and found no later claim. asked: the statuses that wait to be proven.
    """

    def __init__(self) -> None:
        self.asked: Words = {}
        self._epochs: dict[str, int] = {}
        self._proven: Words = {}

    def heard(self, cluster: str, epoch: int) -> bool:
        """Notes a read epoch, of a claim or another record. Returns whether it ends another turn."""
        before = self._epochs.get(cluster, epoch)
        self._epochs[cluster] = max(epoch, before)
        return epoch > before

    def is_present(self, said: WorkloadObserved) -> bool:
        """Returns whether the planner knows of no later turn at the status's cluster."""
        return said.epoch >= self._epochs.get(said.cluster, said.epoch)

    def settles(self, said: WorkloadObserved) -> bool:
        """Returns whether a decision that cannot be taken back may follow from this status.

        If only the proof is missing, it asks for the proof.
        """
        if not self.is_present(said):
            return False
        place = (said.namespace, said.name, said.cluster)
        if self._proven.get(place) is said:
            return True
        self.asked[place] = said
        return False

    def take_asked(self) -> Words:
        """Returns the statuses to prove next: those asked about since the last call."""
        asked, self.asked = self.asked, {}
        return asked

    def prove(self, words: Words) -> None:
        """Marks these statuses as proven.

        Call it once all records that stood in workload-status when they were taken are read. Earlier proofs are
        forgotten: a status that still matters is asked about again.
        """
        self._proven = words
