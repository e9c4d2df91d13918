"""Keeps values that were computed from the pods of a node, as long as the pods' versions stay the same."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class VersionCache(Generic[T]):
    """A cache of one value for each pod. For each node, it contains the pods of the last call only."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, tuple[str, T]]] = {}

    def value_by_uid(self, node: str, versions: Mapping[str, str], make: Callable[[str], T]) -> dict[str, T]:
        """Returns the value of each pod, by uid. A value is computed only if its version is new. versions: by uid."""
        before = self._by_node.pop(node, {})
        found: dict[str, tuple[str, T]] = {}
        for uid, version in versions.items():
            known = before.get(uid)
            found[uid] = known if known is not None and known[0] == version else (version, make(uid))
        if found:
            self._by_node[node] = found
        return {uid: value for uid, (_, value) in found.items()}
