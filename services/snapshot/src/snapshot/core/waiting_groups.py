"""Groups the pods that the scheduler could not place. Groups are updated owner by owner, and bounded in number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from snapshot.core.pods import PodOwner, Pods
from snapshot.core.workloads import OwnerKey, WorkloadKey, WorkloadTable
from spillway.model import Shape

T = TypeVar("T")

OF_NAMESPACE_MAX = 200
"""The most groups of one namespace that are not workloads of ours. A pod without a controller is a group of its own,
and any tenant may create many."""
OF_CLUSTER_MAX = 2_000
OTHERS_REASON = "more controllers have pods that wait than are told apart"
TIES_MAX = 16
"""The most equally frequent entries among which the smallest by text is chosen. If there are more, the first is."""


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Pods of one controller that the scheduler could not place.

    workload: namespace/name when it is ours, else empty.
    reason: the most frequent message of the scheduler.
    shape: the most frequent shape; None when it is unknown.
    """

    workload: str
    pods: int
    reason: str
    shape: Shape | None = None


@dataclass(slots=True)
class _GroupMembers:
    """The members of a group.

    namespace: the namespace for whose bound the group counts; empty for none.
    mixed: whether its pods have different owners.
    """

    workload: str
    namespace: str
    mixed: bool
    owners: set[PodOwner] = field(default_factory=set)
    pods: int = 0


class WaitingGroups:
    """Groups of waiting pods, by name: namespace/name of our workload, else kind/namespace/name of the controller.

    If there are too many groups, further pods are in the group Others of their namespace, or else of the cluster. Such
    a group has the right number of pods and no shape, so no room is looked for. A workload of ours always has its own
    group.
    """

    def __init__(self, pods: Pods, workloads: WorkloadTable) -> None:
        self.changed = False
        self._pods = pods
        self._workloads = workloads
        self._groups: dict[str, WaitingGroup] = {}
        self._members: dict[str, _GroupMembers] = {}
        self._place_by_owner: dict[PodOwner, tuple[str, int]] = {}
        self._owners_by_key: dict[OwnerKey, set[PodOwner]] = {}
        self._names_by_namespace: dict[str, int] = {}
        self._names = 0

    def groups(self) -> dict[str, WaitingGroup]:
        """Returns the groups as of the last refresh."""
        return dict(self._groups)

    def refresh_groups(self, moved: Iterable[WorkloadKey]) -> None:
        """Updates the groups of owners whose pods or workload may have changed.

        moved: workloads that may own other pods than before.
        """
        owners = set(self._pods.dirty_waiting)
        self._pods.dirty_waiting.clear()
        for key in moved:
            if (known := self._members.get("/".join(key))) is not None:
                owners |= known.owners
            for owner_key in self._workloads.pod_owners_of(key) if self._workloads.has_workload(key) else ():
                owners |= self._owners_by_key.get(owner_key, set())
        names: set[str] = set()
        for owner in sorted(owners):
            names |= self._place_owner(owner)
        for name in names:
            self._sum_up_group(name)
        self.changed = self.changed or bool(names)

    def _place_owner(self, owner: PodOwner) -> set[str]:
        """Updates the group of one owner. Returns the names of its former and present group."""
        before = self._place_by_owner.pop(owner, None)
        names = set() if before is None else {before[0]}
        if before is not None:
            self._remove_owner(owner, *before)
        pods = sum(self._pods.waiting.get(owner, {}).values())
        if pods:
            name, new = self._find_group_of_owner(owner)
            members = self._members.get(name)
            if members is None:
                members = self._members[name] = new
                self._count_group(new, 1)
            members.owners.add(owner)
            members.pods += pods
            self._place_by_owner[owner] = name, pods
            self._owners_by_key.setdefault(owner.key, set()).add(owner)
            names.add(name)
        return names

    def _remove_owner(self, owner: PodOwner, name: str, pods: int) -> None:
        members, of_key = self._members[name], self._owners_by_key[owner.key]
        members.pods -= pods
        members.owners.discard(owner)
        if not members.owners:
            del self._members[name]
            self._count_group(members, -1)
        of_key.discard(owner)
        if not of_key:
            del self._owners_by_key[owner.key]

    def _count_group(self, members: _GroupMembers, by: int) -> None:
        if not members.namespace:
            return
        self._names += by
        left = self._names_by_namespace.get(members.namespace, 0) + by
        self._names_by_namespace[members.namespace] = left
        if not left:
            del self._names_by_namespace[members.namespace]

    def _find_group_of_owner(self, owner: PodOwner) -> tuple[str, _GroupMembers]:
        """Returns the name of the group to which an owner's pods belong, and an empty group for that name."""
        key = self._workloads.workload_of(owner.key)
        if key is not None:
            return "/".join(key), _GroupMembers("/".join(key), "", mixed=False)
        own, others = f"{owner.kind}/{owner.namespace}/{owner.name}", f"Others/{owner.namespace}/"
        has_room = self._names < OF_CLUSTER_MAX
        if own in self._members or (has_room and self._names_by_namespace.get(owner.namespace, 0) < OF_NAMESPACE_MAX):
            return own, _GroupMembers("", owner.namespace, mixed=False)
        if others in self._members or has_room:
            return others, _GroupMembers("", owner.namespace, mixed=True)
        return "Others//", _GroupMembers("", "", mixed=True)

    def _sum_up_group(self, name: str) -> None:
        members = self._members.get(name)
        if members is None:
            self._groups.pop(name, None)
            return
        if members.mixed:
            self._groups[name] = WaitingGroup("", members.pods, OTHERS_REASON)
            return
        messages: dict[str, int] = {}
        shapes: dict[Shape | None, int] = {}
        for owner in members.owners:
            _add_counts(messages, self._pods.waiting[owner])
            _add_counts(shapes, self._pods.waiting_shapes[owner])
        self._groups[name] = WaitingGroup(
            members.workload, members.pods, most_frequent_entry(messages), most_frequent_entry(shapes)
        )


def most_frequent_entry(counts: Mapping[T, int]) -> T:
    """Returns the most frequent entry. Among up to TIES_MAX equally frequent ones it is the smallest by text."""
    if len(counts) == 1:
        return next(iter(counts))
    most = max(counts.values())
    found = [entry for entry, count in counts.items() if count == most]
    return found[0] if not 1 < len(found) <= TIES_MAX else min(found, key=repr)


def _add_counts(into: dict[T, int], more: Mapping[T, int]) -> None:
    for entry, count in more.items():
        into[entry] = into.get(entry, 0) + count
