"""Decides whether copies of ConfigMaps and Secrets may be written, and when unused ones are removed.

Each namespace of a pool has a share of an owner.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.places import leaves_as_much_free
from vk_bridge.core.pod.conversion import CopyPlace


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy in an owner. pool: the pool of its original. size_bytes: of its content, as it is or is being written."""

    pool: str
    size_bytes: int


def may_hold_copies(
    held: Mapping[CopyPlace, HeldCopy], wanted: Mapping[CopyPlace, int], pool: str, most_bytes: int
) -> bool:
    """Returns whether one pool's copies may have the wanted sizes in bytes. All of them are of one namespace.

    held: all copies in the owner. most_bytes: the most bytes of all copies there.
    Copies that do not grow together are always allowed: their namespace may hold more than its share since others came.
    """
    asked = added_bytes(held, wanted)
    own = bytes_of_namespace(held, wanted, pool)
    return asked <= 0 or leaves_as_much_free(own, sum(one.size_bytes for one in held.values()), asked, most_bytes)


def added_bytes(held: Mapping[CopyPlace, HeldCopy], wanted: Mapping[CopyPlace, int]) -> int:
    """Returns by how many bytes the wanted copies are larger than they are now."""
    return sum(size - (held[copy].size_bytes if copy in held else 0) for copy, size in wanted.items())


def bytes_of_namespace(held: Mapping[CopyPlace, HeldCopy], wanted: Mapping[CopyPlace, int], pool: str) -> int:
    """Returns the bytes of all copies that the wanted copies' namespace of this pool has now."""
    namespaces = {copy.namespace for copy in wanted}
    return sum(one.size_bytes for copy, one in held.items() if copy.namespace in namespaces and one.pool == pool)


def may_remove_copy(unused_seconds: float, kept_seconds: float, *, lends_nothing: bool) -> bool:
    """Returns whether an unused copy, or a namespace of copies, may be removed.

    unused_seconds: the time since it was last in use. kept_seconds: how long it is kept for the next pod.
    lends_nothing: whether the owner lends no node and will lend none, so that it will never be used again.
    """
    return lends_nothing or unused_seconds >= kept_seconds


def never_fits_text(wanted: Mapping[CopyPlace, int], most_bytes: int) -> str:
    """Returns why copies of these sizes in bytes are never allowed, whatever others hold; empty: they may be."""
    needed, share = sum(wanted.values()), most_bytes // 2
    if needed <= share:
        return ""
    return (
        f"ConfigMaps and Secrets: {needed} bytes: expected at most {share}, half of what a cluster keeps of all "
        f"pods (copies_bytes_max {most_bytes})"
    )
