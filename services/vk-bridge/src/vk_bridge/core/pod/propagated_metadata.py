"""Chooses the labels and annotations of a pool pod that its real pod gets. Others stay in the pool.

A controller in the owner may act on a key with a prefix: it gives roles or networks, injects sidecars, or stops a
drain. Nobody knows all such keys. A key without a prefix belongs to its users.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from spillway.lending_marks import PREFIX
from vk_bridge.core.node.loan import Manifest

CARRIED: Final = ("app.kubernetes.io/",)
"""Prefixes that are carried over by default. Users and tools name applications with them."""
DOWNWARD_PREFIX: Final = "pool.spillway.io/"
NEVER: Final = (PREFIX, DOWNWARD_PREFIX)
"""Our own prefixes, which are never carried over."""


def is_carried_key(key: str, prefixes: Sequence[str]) -> bool:
    """Returns whether a key is carried over. prefixes: the prefixes that are carried over, with their slash."""
    return not key.startswith(NEVER) and ("/" not in key or key.startswith(tuple(prefixes)))


def carried_labels(pool_pod: Manifest, prefixes: Sequence[str]) -> dict[str, str]:
    return _carried_entries(pool_pod["metadata"].get("labels") or {}, prefixes)


def carried_annotations(pool_pod: Manifest, prefixes: Sequence[str]) -> dict[str, str]:
    return _carried_entries(pool_pod["metadata"].get("annotations") or {}, prefixes)


def _carried_entries(found: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if is_carried_key(key, prefixes)}
