"""Lists workloads with replicas that wait for room, and which of them have a reason to be planned again.

A workload waits because clusters lack room for its shape. So rooms are kept by cluster and shape. Only clusters that
changed are looked at, once per waiting shape. Only workloads of a shape that gained room become due.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice

from planner.core.feasibility.room import Room
from planner.core.knowledge.round_time import UNLIMITED_TIME, TimeShare
from spillway.model import Shape

WorkloadKey = tuple[str, str]
Loans = frozenset[tuple[str, int]]
"""The nodes of one cluster that are lent or on their way back, with their states."""
Rooms = tuple[Room, ...]
"""The rooms of one shape in one cluster: on existing nodes and, if it has node groups, on their new nodes."""


class WaitingList:
    """Workloads that wait for room, by priority.

    Namespaces of one priority take turns. In each namespace, the workload that has been due longest is first.
    unsettled: workloads that still wait for binds. So far they use only certain room, not room that is only possible.
    for_lent: workloads that wait for lent nodes and do not use later tiers yet, with the loans of each cluster at the
    time when the wait began.
    """

    def __init__(self) -> None:
        self.served_at = 0.0
        self.unsettled: dict[WorkloadKey, None] = {}
        self.for_lent: dict[WorkloadKey, dict[str, Loans]] = {}
        self._unanswered: dict[str, tuple[Loans, float]] = {}
        self._shapes: dict[WorkloadKey, Shape] = {}
        self._priorities: dict[WorkloadKey, int] = {}
        self._keys_by_shape: dict[Shape, dict[WorkloadKey, None]] = {}
        self._due: dict[WorkloadKey, None] = {}
        self._anyway: set[WorkloadKey] = set()
        self._touched: dict[str, None] = {}
        self._waiting_in: Counter[str] = Counter()
        self._turns: dict[str, int] = {}
        self._turns_taken = 0
        self._rooms: dict[str, dict[Shape, Rooms]] = {}

    def __iter__(self) -> Iterator[WorkloadKey]:
        return iter(self._shapes)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._shapes

    def __len__(self) -> int:
        return len(self._shapes)

    def workloads_with_shape(self, shape: Shape) -> Iterator[WorkloadKey]:
        return iter(self._keys_by_shape.get(shape, ()))

    def put_workload(self, key: WorkloadKey, shape: Shape, priority: int = 0) -> None:
        """Adds a workload that waits with this shape. It is due if it did not wait with this shape before."""
        self._priorities[key] = priority
        if self._shapes.get(key) == shape:
            return
        self.drop_workload(key)
        self._priorities[key] = priority
        self._shapes[key] = shape
        self._waiting_in[key[0]] += 1
        if shape not in self._keys_by_shape:
            self._keys_by_shape[shape] = {}
            self._touched.update(dict.fromkeys(self._rooms))
        self._keys_by_shape[shape][key] = None
        self.retry_workload(key)

    def drop_workload(self, key: WorkloadKey) -> None:
        """Removes a workload that no longer waits."""
        self.remove_from_due(key)
        self.unsettled.pop(key, None)
        self.for_lent.pop(key, None)
        self._priorities.pop(key, None)
        shape = self._shapes.pop(key, None)
        if shape is None:
            return
        self._waiting_in[key[0]] -= 1
        if not self._waiting_in[key[0]]:
            del self._waiting_in[key[0]]
            self._turns.pop(key[0], None)
        keys = self._keys_by_shape[shape]
        del keys[key]
        if not keys:
            del self._keys_by_shape[shape]
            for rooms in self._rooms.values():
                rooms.pop(shape, None)

    def note_vain_wait(self, cluster: str, loans: Loans, until: float) -> None:
        """Records that a workload waited for nodes that this cluster has lent, and that none of its loans changed.

        The cluster's bridge or descheduler may not run. So no workload waits for these nodes any more, and
        may_wait_for_lent_nodes() returns False, until a loan changes or the time `until` comes.
        loans: the cluster's loans now.
        """
        self._unanswered[cluster] = loans, until

    def may_wait_for_lent_nodes(self, cluster: str, loans: Loans, now: float) -> bool:
        """Returns whether a workload may wait for the cluster's lent nodes. It may not soon after a wait in vain: see
        note_vain_wait()."""
        loans_then, until = self._unanswered.get(cluster, (None, now))
        if now < until and loans == loans_then:
            return False
        self._unanswered.pop(cluster, None)
        return True

    def mark_changed_clusters(self, *clusters: str) -> None:
        """Marks clusters whose rooms may have changed. The next look_at_changed_clusters() computes them again."""
        self._touched.update(dict.fromkeys(clusters))

    def retry_workload(self, key: WorkloadKey) -> None:
        """Makes a workload due, even if no cluster has room for its shape."""
        if key in self._shapes:
            self._due[key] = None
            self._anyway.add(key)

    def retry_hopeful(self) -> None:
        """Makes all workloads due, for example because a brake ended. due_workloads() drops those that have no room."""
        self._due.update(dict.fromkeys(self._shapes))

    def retry_template(self, digest: str) -> None:
        """Makes the workloads of a template due. A missing object may exist now, and rooms do not show that."""
        for key in [key for key, shape in self._shapes.items() if shape.template == digest]:
            self.retry_workload(key)

    def begin_new_wait(self, key: WorkloadKey) -> None:
        """Starts a new wait of a workload that now waits for something else. It may wait for binds again."""
        self.unsettled.pop(key, None)
        self.retry_workload(key)

    def note_tried(self, key: WorkloadKey, rooms_of: Callable[[str, Shape], Rooms]) -> None:
        """Records that a workload was planned on the present rooms, which may differ from those of the last look.

        Other workloads may have taken room since that look. The present rooms are stored for its shape. So if that room
        comes back by the next look, it counts as a gain.
        """
        shape = self._shapes.get(key)
        if shape is not None:
            for cluster in self._touched:
                self._compare_rooms(cluster, shape, rooms_of)
        self.remove_from_due(key)

    def remove_from_due(self, key: WorkloadKey) -> None:
        """Removes a workload from the due workloads, because it was planned on all rooms that have been looked at."""
        self._due.pop(key, None)
        self._anyway.discard(key)

    def look_at_changed_clusters(self, rooms_of: Callable[[str, Shape], Rooms], most: int) -> None:
        """Computes the rooms of the marked clusters again, the longest marked first, until `most` rooms are computed.

        The next call continues with the other clusters, so that no request waits for all of them. rooms_of: returns
        an empty tuple for an unknown cluster.
        """
        looked_at = 0
        for cluster in list(self._touched):
            if looked_at >= most:
                break
            del self._touched[cluster]
            looked_at += len(self._keys_by_shape)
            for shape in self._keys_by_shape:
                self._compare_rooms(cluster, shape, rooms_of)

    def _compare_rooms(self, cluster: str, shape: Shape, rooms_of: Callable[[str, Shape], Rooms]) -> None:
        known, keys = self._rooms.setdefault(cluster, {}), self._keys_by_shape[shape]
        before, rooms = known.get(shape, ()), rooms_of(cluster, shape)
        known[shape] = rooms
        if _has_room_grown(before, rooms):
            self._due.update(keys)
        elif _has_room_narrowed(before, rooms):
            self._due.update((key, None) for key in keys if key in self.unsettled)

    @property
    def highest_priority(self) -> int | None:
        """Returns the highest priority of the waiting workloads; None when none waits."""
        return max(self._priorities.values(), default=None)

    def due_workloads(
        self,
        most: int,
        above: int | None = None,
        is_held_back: Callable[[WorkloadKey], bool] | None = None,
        time: TimeShare = UNLIMITED_TIME,
    ) -> Iterator[WorkloadKey]:
        """Yields at most `most` due workloads: the highest priority first, and namespaces of one priority in turns.

        Within a namespace, the workload that has been due longest comes first. A namespace may have thousands of due
        workloads that room does not help, because their own policy limits them. It delays another namespace by one
        turn only. A turn counts when its workload is yielded, so a caller that stops takes no turn from anyone.
        Workloads whose shape has no room anywhere are removed from the due workloads.
        above: yield only workloads of a higher priority than this. is_held_back: returns whether a workload stays due
        and is not yielded now; None: none is. It is asked only until enough are found, or the time is over.
        """
        found = (
            key
            for _, by_namespace in sorted(self._due_by_priority(above).items(), reverse=True)
            for key in self._take_turns_by_namespace(by_namespace, is_held_back, time)
        )
        return islice(found, most)

    def _due_by_priority(self, above: int | None) -> dict[int, dict[str, deque[WorkloadKey]]]:
        """Returns the due workloads by priority and namespace. Those that have no room are no longer due."""
        hopeless = {shape for shape in self._keys_by_shape if not self._has_possible_room(shape)}
        found: dict[int, dict[str, deque[WorkloadKey]]] = {}
        for key in list(self._due):
            if key not in self._anyway and self._shapes[key] in hopeless:
                del self._due[key]
            elif above is None or self._priorities[key] > above:
                found.setdefault(self._priorities[key], {}).setdefault(key[0], deque()).append(key)
        return found

    def _take_turns_by_namespace(
        self,
        by_namespace: dict[str, deque[WorkloadKey]],
        is_held_back: Callable[[WorkloadKey], bool] | None,
        time: TimeShare,
    ) -> Iterator[WorkloadKey]:
        """Takes one workload of each namespace in turn. The namespace whose last turn is the oldest begins."""
        turns = deque(sorted(by_namespace, key=lambda namespace: self._turns.get(namespace, 0)))
        while turns:
            namespace = turns.popleft()
            key = self._next_not_held_back(by_namespace[namespace], is_held_back, time)
            if key is None:
                if time.is_over():
                    return
                continue
            self._turns_taken += 1
            self._turns[namespace] = self._turns_taken
            if by_namespace[namespace]:
                turns.append(namespace)
            yield key

    def _next_not_held_back(
        self, keys: deque[WorkloadKey], is_held_back: Callable[[WorkloadKey], bool] | None, time: TimeShare
    ) -> WorkloadKey | None:
        """Takes the first workload that is not held back; None if there is none, or if the time is over before."""
        while keys:
            key = keys.popleft()
            if key in self._shapes and not (is_held_back and is_held_back(key)):
                return key
            if time.is_over():
                return None
        return None

    def hopeful_workloads_in(self, cluster: str) -> Iterator[WorkloadKey]:
        """Yields the waiting workloads that may fit on a cluster's existing nodes: their shape had possible room there
        at the last look, or was not looked at yet."""
        known = self._rooms.get(cluster, {})
        for shape, keys in self._keys_by_shape.items():
            rooms = known.get(shape)
            if rooms is None or (rooms and rooms[0].possible):
                yield from keys

    def may_have_room_in(self, key: WorkloadKey, cluster: str) -> bool:
        """Returns whether the existing nodes of a cluster may have room for a waiting workload: its shape had possible
        room there at the last look, or was not looked at yet."""
        rooms = self._rooms.get(cluster, {}).get(self._shapes[key])
        return rooms is None or bool(rooms and rooms[0].possible)

    def _has_possible_room(self, shape: Shape) -> bool:
        return any(room.possible for rooms in self._rooms.values() for room in rooms.get(shape, ()))


def _has_room_grown(before: Rooms, after: Rooms) -> bool:
    if len(before) != len(after):
        return bool(after)
    return any(new.certain > old.certain or new.possible > old.possible for old, new in zip(before, after, strict=True))


def _has_room_narrowed(before: Rooms, after: Rooms) -> bool:
    """Returns whether fewer replicas are possible now. Workloads that waited for binds may then use the next tier."""
    return any(new.possible < old.possible for old, new in zip(before, after, strict=False))


def put_or_drop_key(keys: dict[WorkloadKey, None], key: WorkloadKey, member: bool) -> None:
    if member:
        keys.setdefault(key)
    else:
        keys.pop(key, None)
