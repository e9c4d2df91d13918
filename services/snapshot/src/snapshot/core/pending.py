"""Makes the records of groups of unschedulable pods: new ones, changes, and tombstones of groups that are gone."""

from collections.abc import Mapping
from dataclasses import dataclass

from snapshot.core.rules import SnapshotRules
from snapshot.core.waiting_groups import WaitingGroup
from spillway.addresses import Tombstone, pending_address
from spillway.events import PodsScheduled, PodsUnschedulable

SCHEDULED_KEPT_MAX = 5_000
"""The most groups without waiting pods that still have a record in the log. If there are more, the first ones get their
tombstone early."""

PendingEvent = PodsUnschedulable | PodsScheduled | Tombstone


@dataclass(slots=True)
class _WrittenGroup:
    """The last record of a group.

    group: the content of the record; None when none of the group's pods waits.
    at: the time at which the record was made.
    unsure: whether the log may have another record as the last one.
    """

    group: WaitingGroup | None
    at: float
    unsure: bool = False


class Pending:
    """The pending groups of one cluster.

    A change in the number of pods is due at once. A change of only the scheduler's message is due at long intervals.
    """

    def __init__(self, cluster: str, rules: SnapshotRules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._groups: dict[str, WaitingGroup] = {}
        self._said: dict[str, _WrittenGroup] = {}
        self._scheduled: dict[str, None] = {}
        self._shortened: set[str] = set()
        self._sequence = 0
        self._changed = False

    @property
    def pod_count(self) -> int:
        return sum(group.pods for group in self._groups.values())

    def has_waiting_group(self, name: str) -> bool:
        return name in self._groups

    def replace_groups(self, groups: Mapping[str, WaitingGroup]) -> None:
        self._groups = dict(groups)
        self._changed = True

    def begin_epoch(self) -> None:
        """Starts a new epoch: all waiting groups are written again under it."""
        self._sequence = 0
        self._said = {name: said for name, said in self._said.items() if said.group is not None}
        self._scheduled.clear()
        for said in self._said.values():
            said.unsure = True
        self._changed = True

    def make_record_due(self, name: str) -> None:
        """Makes the group's record due again, because the log may lack it or has another writer's record after it."""
        self._said.setdefault(name, _WrittenGroup(None, 0.0)).unsure = True
        self._changed = True

    def shorten_record(self, name: str) -> None:
        """Leaves the shape out of the group's records until none of its pods waits: it is too large for a record."""
        self._shortened.add(name)

    def next_due_at(self) -> float:
        """Returns when a record may be due even if nothing changes."""
        if self._changed:
            return 0.0
        return min((self._due_at(name, said) for name, said in self._said.items()), default=float("inf"))

    def take_due_records(self, epoch: int, now: float) -> list[PendingEvent]:
        if now < self.next_due_at():
            return []
        self._changed = False
        events: list[PendingEvent] = []
        for name in sorted(self._groups.keys() | self._said.keys()):
            group, said = self._groups.get(name), self._said.get(name)
            if said is None or said.unsure or now >= self._due_at(name, said):
                events.append(self._record_of_group(name, group, said, epoch, now))
        while len(self._scheduled) > SCHEDULED_KEPT_MAX:
            events.append(self._forget_group(next(iter(self._scheduled))))
        return events

    def _forget_group(self, name: str) -> Tombstone:
        del self._said[name], self._scheduled[name]
        return Tombstone(pending_address(self._cluster, name))

    def _record_of_group(
        self, name: str, group: WaitingGroup | None, said: _WrittenGroup | None, epoch: int, now: float
    ) -> PendingEvent:
        if group is None and said is not None and said.group is None and not said.unsure:
            return self._forget_group(name)
        self._said[name] = _WrittenGroup(group, now)
        self._sequence += 1
        if group is None:
            self._shortened.discard(name)
            self._scheduled[name] = None
            return PodsScheduled(self._cluster, name, epoch, self._sequence)
        self._scheduled.pop(name, None)
        shape = None if name in self._shortened else group.shape
        return PodsUnschedulable(
            self._cluster, name, epoch, self._sequence, group.workload, group.pods, group.reason, shape
        )  # fmt: skip

    def _due_at(self, name: str, said: _WrittenGroup) -> float:
        """Returns the time at which the group needs a new record."""
        group = self._groups.get(name)
        if said.unsure:
            return 0.0
        if group is None:
            return 0.0 if said.group is not None else said.at + self._rules.pending_forget_seconds
        if said.group is None or (said.group.pods, said.group.workload) != (group.pods, group.workload):
            return 0.0
        return float("inf") if said.group == group else said.at + self._rules.pending_reason_seconds
