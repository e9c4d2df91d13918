"""Remembers the attempts at each workload of one cluster, for as long as a placement lists it there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from propagator.cluster.mirror import DependencyOwner
from propagator.core.actions import Hold, PropagationRules
from propagator.core.desired import PartTarget
from propagator.core.manifests import workload_label
from propagator.core.reconcile import WriteHistory, history_from_status
from propagator.core.status import SETTLED, AttemptOutcome, retry_seconds
from propagator.settings import PropagatorSettings
from spillway import metrics
from spillway.events import STATE_ORPHANED, WorkloadObserved
from spillway.model import ObjectReference
from spillway.pauses import doubled_pause_seconds


@dataclass(slots=True)
class AttemptMemory:
    """The attempts at one workload in one cluster. Times are seconds of one monotonic clock.

    looked_at: whether it was worked on in this turn; no status is published before.
    retries: the number of attempts in a row with the same outcome.
    due_since: the time since which work is known to be due; None when none is.
    hold: the reason why nothing is done now; None when there is none.
    held_since: the time since which every result was a hold; None when the last was not.
    kind: the kind of its object; empty while it is unknown. A part that is removed without a declaration keeps the
        chosen kind: once that object is gone, an object of another kind with the same name is not ours to delete.
    failed: the number of unexpected errors in a row.
    """

    history: WriteHistory
    outcome: AttemptOutcome | None = None
    looked_at: bool = False
    retries: int = 0
    due_since: float | None = None
    hold: Hold | None = None
    held_since: float | None = None
    kind: str = ""
    failed: int = 0

    @property
    def missing_objects(self) -> tuple[ObjectReference, ...]:
        """Returns the objects that were missing at the last try."""
        return self.outcome.missing if self.outcome is not None else ()

    def note_work_due(self, now: float) -> None:
        """Records when the work became due; note_success measures from then. Does nothing if work was due already."""
        if self.due_since is None:
            self.due_since = now

    def note_success(self, now: float) -> None:
        """Records that the cluster is as it should be, and how long that took since the work was due."""
        if self.due_since is not None:
            metrics.PLACEMENT_SECONDS.observe(now - self.due_since)
        self.due_since = None
        self.failed = 0
        self.end_hold()
        self._set_outcome(None)

    def note_outcome(self, outcome: AttemptOutcome, settings: PropagatorSettings) -> float | None:
        """Stores the outcome. Returns the seconds until the next try; None when another try cannot help."""
        self.due_since = None
        self.failed = 0
        self.end_hold()
        before = self.outcome
        if before is None or (before.version, before.state) != (outcome.version, outcome.state):
            self.retries = 0
        self._set_outcome(outcome)
        seconds = retry_seconds(outcome.state, self.retries, settings.retry_rules())
        self.retries += 1
        return seconds

    def note_hold(self, hold: Hold, now: float, settings: PropagatorSettings) -> float | None:
        """Stores the hold. Returns the seconds until the next look; None when only a record or an event ends it."""
        self.hold, self.failed = hold, 0
        if self.held_since is None:
            self.held_since = now
        left = self.held_since + settings.hold_said_seconds - now
        return min((pause for pause in (left, hold.seconds) if pause > 0), default=None)

    def note_unexpected_error(self, hold: Hold, now: float, settings: PropagatorSettings) -> float:
        """Counts an unexpected error. Returns the seconds until the next try; the hold is published until then."""
        self.looked_at, self.hold = True, hold
        self.held_since = now if self.held_since is None else self.held_since
        seconds = doubled_pause_seconds(settings.failed_first_seconds, settings.failed_longest_seconds, self.failed)
        self.failed += 1
        return seconds

    def end_hold(self) -> None:
        """Ends the hold and its time."""
        self.hold = self.held_since = None

    def hold_reason_to_publish(self, now: float, settings: PropagatorSettings) -> str:
        """Returns the reason of the hold if its status must have it: at once if lasting, else after hold_said_seconds.

        Returns an empty text before that, and without a hold.
        """
        if self.hold is None or self.held_since is None:
            return ""
        lasts = self.hold.lasting or now - self.held_since >= settings.hold_said_seconds
        return self.hold.reason if lasts else ""

    def close(self) -> None:
        """Removes the outcome from the metrics, because the memory is dropped."""
        self._set_outcome(None)

    def _set_outcome(self, outcome: AttemptOutcome | None) -> None:
        for said, by in ((self.outcome, -1), (outcome, 1)):
            if said is not None and said.state not in SETTLED:
                metrics.OBJECTS_HELD.labels(said.state).inc(by)
        self.outcome = outcome


class AttemptMemories:
    """The memories of one cluster. logged: returns the last status in the log, with which a new owner begins."""

    def __init__(
        self,
        logged: Callable[[PartTarget], WorkloadObserved | None],
        rules: PropagationRules,
        clock: Callable[[], float],
    ) -> None:
        self._logged = logged
        self._rules = rules
        self._clock = clock
        self._memories: dict[PartTarget, AttemptMemory] = {}
        self._target_by_owner: dict[DependencyOwner, PartTarget] = {}

    def __iter__(self) -> Iterator[PartTarget]:
        return iter(tuple(self._memories))

    def memory_of_target(self, target: PartTarget) -> AttemptMemory | None:
        return self._memories.get(target)

    def ensure_memory(self, target: PartTarget) -> None:
        """Creates the memory of a target that has none yet. It begins with the last status in the log."""
        if target not in self._memories:
            said = self._logged(target)
            kind = said.kind if said is not None and said.state != STATE_ORPHANED else ""
            self._memories[target] = AttemptMemory(history_from_status(said, self._clock(), self._rules), kind=kind)
            self._target_by_owner[_dependency_owner_of(target)] = target

    def forget_memory(self, target: PartTarget) -> None:
        memory = self._memories.pop(target, None)
        if memory is not None:
            memory.close()
            self._target_by_owner.pop(_dependency_owner_of(target), None)

    def has_target_of_owner(self, owner: DependencyOwner) -> bool:
        return owner in self._target_by_owner

    def targets_of_owners(self, owners: frozenset[DependencyOwner]) -> frozenset[PartTarget]:
        return frozenset(self._target_by_owner[owner] for owner in owners if owner in self._target_by_owner)


def _dependency_owner_of(target: PartTarget) -> DependencyOwner:
    return DependencyOwner(target.namespace, workload_label(target.name))
