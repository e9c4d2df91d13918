"""What each namespace has declared: how many workloads, what goes along with them, and how many bytes that is."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Policy

DependencyKey = tuple[str, str, str]
"""Kind, namespace, name."""


class Held(NamedTuple):
    """Of one namespace, until it is forgotten: also of what was deleted and is still remembered."""

    workloads: int = 0
    size: int = 0


def size_of(manifest: bytes, policy: Policy, along: Iterable[bytes] = ()) -> int:
    """Bytes of a declaration: of its manifest, its policy and what goes along. What it keeps besides has bounds of its
    own for each workload: answers, and templates that clusters still have."""
    return len(manifest) + len(msgspec.msgpack.encode(policy)) + sum(map(len, along))


class Declared:
    """dependencies: by key, whoever's they are. Of one that its workload lists no more the content is not kept."""

    def __init__(self) -> None:
        self._dependencies: dict[DependencyKey, DependencyDeclared] = {}
        self._owned: dict[str, dict[DependencyKey, None]] = {}
        self._sizes: dict[WorkloadKey, int] = {}
        self._workloads = Counter[str]()
        self._bytes = Counter[str]()

    @property
    def dependencies(self) -> Mapping[DependencyKey, DependencyDeclared]:
        return self._dependencies

    def of(self, namespace: str) -> Held:
        """What a namespace has."""
        return Held(self._workloads[namespace], self._bytes[namespace])

    def size(self, key: WorkloadKey) -> int:
        """Of one workload, with what goes along; 0 where it is not known."""
        return self._sizes.get(key, 0) + sum(len(entry.manifest) for entry in self.owned(key))

    def owned(self, key: WorkloadKey) -> list[DependencyDeclared]:
        """What goes along with a workload, or did once."""
        return [self._dependencies[name] for name in self._owned.get("/".join(key), ())]

    def declare(self, event: WorkloadDeclared) -> None:
        """The newest declaration of a workload."""
        key = (event.namespace, event.name)
        if key not in self._sizes:
            self._workloads[event.namespace] += 1
        size = size_of(event.manifest, event.policy)
        self._bytes[event.namespace] += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        for name in self._owned.get("/".join(key), ()):
            before = self._dependencies[name]
            if (kept := _as_kept(before, event)) is not before:
                self._put(name, kept)

    def depend(self, event: DependencyDeclared, owner: WorkloadDeclared | None) -> None:
        """One that goes along with a workload; an older one is dropped. owner: the workload's declaration, if known."""
        key = (event.kind, event.namespace, event.name)
        known = self._dependencies.get(key)
        if known is not None and known.workload == event.workload:
            is_older = event.workload_generation < known.workload_generation
        else:  # Who gave the name up takes nothing from who has it now.
            is_older = known is not None and not event.manifest
        if not is_older:
            self._put(key, _as_kept(event, owner))

    def forget(self, key: WorkloadKey) -> None:
        """Nothing of a workload is known any more."""
        for name in list(self._owned.get("/".join(key), ())):
            self._put(name, None)
        size = self._sizes.pop(key, None)
        if size is not None:
            self._bytes[key[0]] -= size
            self._workloads[key[0]] -= 1
        if not self._workloads[key[0]] and not self._bytes[key[0]]:
            del self._workloads[key[0]], self._bytes[key[0]]

    def _put(self, key: DependencyKey, event: DependencyDeclared | None) -> None:
        before = self._dependencies.pop(key, None)
        if before is not None:
            self._bytes[key[1]] -= len(before.manifest)
            owned = self._owned[before.workload]
            if event is None or event.workload != before.workload:
                del owned[key]
            if not owned:
                del self._owned[before.workload]
        if event is not None:
            self._dependencies[key] = event
            self._bytes[key[1]] += len(event.manifest)
            self._owned.setdefault(event.workload, {})[key] = None


def _as_kept(event: DependencyDeclared, owner: WorkloadDeclared | None) -> DependencyDeclared:
    """Without its content where a declaration that is not older than it does not list it."""
    if owner is None or owner.generation < event.workload_generation or not event.manifest:
        return event
    listed = any((one.kind, one.name) == (event.kind, event.name) for one in owner.dependencies)
    return event if listed else replace(event, manifest=b"")
