"""Which labels and annotations of a pool pod its real pod gets: what an owner's machinery may obey stays in the pool.

By a key with a prefix some controller gives, holds or injects something (roles, networks, sidecars, whether a node may
be drained), and nobody knows all that run in an owner. A key without one is its users' own.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from spillway.lending_marks import PREFIX
from vk_bridge.core.node.loan import Manifest

CARRIED: Final = ("app.kubernetes.io/",)
"""Prefixes that are carried over unless an operator names others: what people and tools call a thing."""
DOWNWARD_PREFIX: Final = "pool.spillway.io/"
NEVER: Final = (PREFIX, DOWNWARD_PREFIX)
"""Ours."""


def is_carried(key: str, prefixes: Sequence[str]) -> bool:
    """prefixes: those that are carried over, with their slash."""
    return not key.startswith(NEVER) and ("/" not in key or key.startswith(tuple(prefixes)))


def carried_labels(pool_pod: Manifest, prefixes: Sequence[str]) -> dict[str, str]:
    return _carried(pool_pod["metadata"].get("labels") or {}, prefixes)


def carried_annotations(pool_pod: Manifest, prefixes: Sequence[str]) -> dict[str, str]:
    return _carried(pool_pod["metadata"].get("annotations") or {}, prefixes)


def _carried(found: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if is_carried(key, prefixes)}
