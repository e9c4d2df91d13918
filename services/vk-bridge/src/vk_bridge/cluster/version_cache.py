"""What was worked out of the pods of a node, kept as long as their versions are the same."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class VersionCache(Generic[T]):
    """Of each node, for the pods that it had when it was looked at last."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, tuple[str, T]]] = {}

    def look(self, node: str, versions: Mapping[str, str], make: Callable[[str], T]) -> dict[str, T]:
        """The value of each pod, by uid; made for those of which this version was not known. versions: by uid."""
        before = self._by_node.pop(node, {})
        found: dict[str, tuple[str, T]] = {}
        for uid, version in versions.items():
            known = before.get(uid)
            found[uid] = known if known is not None and known[0] == version else (version, make(uid))
        if found:
            self._by_node[node] = found
        return {uid: value for uid, (_, value) in found.items()}
