"""Objects, the one resourceVersion counter, and the bounded history that watches read."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from sim.core.kinds import KIND_BY_PLURAL, Key, Object, key_of


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    plural: str
    key: Key
    new: Object
    """The object after the change. After a deletion it is the last state, with the deletion's version."""
    old: Object | None


class Log:
    """The changes of one resource. A position counts changes since the cluster was made."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._versions: list[int] = []
        self._first = 0
        self.floor = 0
        """The newest version that is no longer in the history."""
        self.expired_end = 0
        """Changes at lower positions were dropped on purpose, not because a reader was slow."""

    @property
    def end_position(self) -> int:
        return self._first + len(self._changes)

    def append(self, change: Change) -> None:
        self._changes.append(change)
        self._versions.append(change.version)
        if len(self._changes) > 2 * self._limit:
            self._forget_changes(len(self._changes) - self._limit)

    def position_after(self, version: int) -> int | None:
        """Returns the position for reading after `version`; None when that is forgotten."""
        return None if version < self.floor else self._first + bisect_right(self._versions, version)

    def read_changes(self, position: int, limit: int) -> list[Change] | None:
        """Returns changes from a position; None when the position is forgotten."""
        start = position - self._first
        return None if start < 0 else self._changes[start : start + limit]

    def forget_all_changes(self, current: int) -> None:
        # One position more than there was, so that readers at the end find themselves expired as well.
        self._forget_changes(len(self._changes))
        self._first += 1
        self.expired_end = self._first
        self.floor = current

    def _forget_changes(self, count: int) -> None:
        if count:
            self.floor = self._versions[count - 1]
        del self._changes[:count]
        del self._versions[:count]
        self._first += count


class Store:
    """All objects. Every write gets the next version, is added to the history and is passed to the listener."""

    def __init__(self, first_version: int, history_changes: int) -> None:
        self.version = first_version
        self.tables: dict[str, dict[Key, Object]] = {plural: {} for plural in KIND_BY_PLURAL}
        self.logs = {plural: Log(history_changes) for plural in KIND_BY_PLURAL}
        self.listener: Callable[[Change], None] = lambda _change: None
        self._sorted_keys: dict[str, list[Key]] = {}
        self._pods_by_node: dict[str, dict[Key, None]] = {}

    def get_object(self, plural: str, key: Key) -> Object | None:
        return self.tables[plural].get(key)

    def put_object(self, plural: str, found_object: Object) -> Object:
        """Creates or replaces an object. The stored object is the argument with its new resourceVersion."""
        self.version += 1
        metadata = {**found_object["metadata"], "resourceVersion": str(self.version)}
        new = {**found_object, "metadata": metadata}
        key = key_of(metadata)
        table = self.tables[plural]
        old = table.get(key)
        table[key] = new
        if old is None:
            self._sorted_keys.pop(plural, None)
        if plural == "pods":
            self._index_pod(key, old, new)
        self._publish_change(Change(self.version, "MODIFIED" if old else "ADDED", plural, key, new, old))
        return new

    def remove_object(self, plural: str, key: Key) -> Object:
        self.version += 1
        old = self.tables[plural].pop(key)
        self._sorted_keys.pop(plural, None)
        if plural == "pods":
            self._index_pod(key, old, None)
        new = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._publish_change(Change(self.version, "DELETED", plural, key, new, old))
        return new

    def sorted_keys(self, plural: str) -> list[Key]:
        """Returns the keys in the order of lists. The caller must not change the list."""
        keys = self._sorted_keys.get(plural)
        if keys is None:
            keys = self._sorted_keys[plural] = sorted(self.tables[plural])
        return keys

    def pods_on_node(self, node: str) -> list[Key]:
        """Returns a node's pods of all phases, in the order of lists. API servers have an index for this field."""
        return sorted(self._pods_by_node.get(node, ()))

    def _index_pod(self, key: Key, old: Object | None, new: Object | None) -> None:
        before, after = (one["spec"].get("nodeName", "") if one else "" for one in (old, new))
        if before == after:
            return
        if before:
            pods = self._pods_by_node[before]
            del pods[key]
            if not pods:
                del self._pods_by_node[before]
        if after:
            self._pods_by_node.setdefault(after, {})[key] = None

    def objects_in_namespace(self, plural: str, namespace: str) -> Iterable[Object]:
        return (found for key, found in self.tables[plural].items() if key[0] == namespace)

    def expire_history(self) -> None:
        for log in self.logs.values():
            log.forget_all_changes(self.version)

    def restart_versions(self) -> None:
        """Keeps all objects and numbers their versions from 1.

        The versions from which watches ask are then in the future.
        """
        self.version = 0
        for table in self.tables.values():
            for key, found in table.items():
                self.version += 1
                table[key] = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
        self._sorted_keys.clear()
        self.expire_history()

    def _publish_change(self, change: Change) -> None:
        self.logs[change.plural].append(change)
        self.listener(change)
