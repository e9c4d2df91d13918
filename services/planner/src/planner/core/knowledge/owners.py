"""Proves that a status comes from the newest turn of its cluster's propagator. Some decisions need that proof."""

from spillway.events import WorkloadObserved

Place = tuple[str, str, str]
Words = dict[Place, WorkloadObserved]
"""Statuses by (namespace, name, cluster)."""


class PropagatorEpochs:
    """The newest known epoch of the propagator at each cluster, and the statuses that are proven to be of it.

    Only a proven status may lead to a decision that cannot be taken back (the state table: docs/turns.md). A claim and
    a status lie in different partitions, so the planner may read a status of an ended turn before it reads the claim
    that ended the turn. When the planner knows a status, it reads the log up to its present end. If there is no later
    claim, the status is proven. asked: the statuses that wait to be proven.
    """

    def __init__(self) -> None:
        self.asked: Words = {}
        self._epochs: dict[str, int] = {}
        self._proven: Words = {}

    def note_epoch(self, cluster: str, epoch: int) -> bool:
        """Stores the epoch of a record that was read, so that older statuses no longer count.

        Returns whether this epoch ends an earlier turn.
        """
        before = self._epochs.get(cluster, epoch)
        self._epochs[cluster] = max(epoch, before)
        return epoch > before

    def is_of_newest_turn(self, said: WorkloadObserved) -> bool:
        """Returns whether the planner knows of no later turn at the status's cluster."""
        return said.epoch >= self._epochs.get(said.cluster, said.epoch)

    def may_decide_finally(self, said: WorkloadObserved) -> bool:
        """Returns whether a decision that cannot be taken back may follow from this status.

        If only the proof is missing, it asks for the proof.
        """
        if not self.is_of_newest_turn(said):
            return False
        place = (said.namespace, said.name, said.cluster)
        if self._proven.get(place) is said:
            return True
        self.asked[place] = said
        return False

    def take_statuses_to_prove(self) -> Words:
        """Returns the statuses to prove next: those asked about since the last call."""
        asked, self.asked = self.asked, {}
        return asked

    def mark_proven(self, words: Words) -> None:
        """Marks these statuses as proven.

        Call it once workload-status is read up to the end that it had when `take_statuses_to_prove` was called. Earlier
        proofs are forgotten: a status that still matters is asked about again.
        """
        self._proven = words
