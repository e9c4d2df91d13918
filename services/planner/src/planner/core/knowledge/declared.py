"""Keeps the workloads and bytes that each namespace has declared, and the objects that go along with workloads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Answered, Policy, Shape

DependencyKey = tuple[str, str, str]
"""(kind, namespace, name) of an object that goes along with a workload."""


class NamespaceUsage(NamedTuple):
    """The workloads and bytes that one namespace has declared. A deleted workload counts until it is forgotten."""

    workloads: int = 0
    size: int = 0


WORKLOAD_BYTES: Final = 1024
"""Bytes that each workload counts for in addition to its declaration: entries by its name, and its records."""
VALUE_BYTES: Final = 64
"""Bytes that each value of a shape counts for in addition to its text. In memory, a short label takes eighteen times
its encoded size."""
POLICIES_KEPT_MAX: Final = 256
"""The number of policies whose size is kept. Each change of a workload's replicas asks for the size of its policy."""
ANSWER_BYTES: Final = 96
"""Bytes of a kept answer in addition to its key and text: the request's digest, the time, the encoding."""


def declaration_bytes(event: WorkloadDeclared, along: Iterable[bytes] = ()) -> int:
    """Returns the bytes that a declaration counts for. along: the manifests of objects that go along with it."""
    return (
        WORKLOAD_BYTES
        + len(event.manifest)
        + _policy_bytes(event.policy)
        + sum(len(earlier.manifest) for earlier in event.earlier_templates)
        + sum(map(shape_bytes, event.rolling_from))
        + sum(answer_bytes(entry) for entry in event.answered)
        + sum(map(len, along))
    )


@lru_cache(maxsize=POLICIES_KEPT_MAX)
def _policy_bytes(policy: Policy) -> int:
    return len(msgspec.msgpack.encode(policy))


def shape_bytes(shape: Shape) -> int:
    """Estimates the bytes of a shape in memory: its JSON, and VALUE_BYTES for each value that is not empty."""
    text = msgspec.json.encode(shape)
    # A comma or an opening bracket stands before each value. Empty lists and texts are not counted as values.
    marks = text.count(b",") + text.count(b"[") + text.count(b"{")
    empty = 2 * text.count(b"[]") + text.count(b'""')
    return len(text) + VALUE_BYTES * max(marks - empty, 0)


def answer_bytes(entry: Answered) -> int:
    return len(entry.key) + len(entry.answer) + ANSWER_BYTES


class NamespaceDeclarations:
    """Counts what each namespace has declared, and keeps the objects that go along with workloads.

    dependencies: these objects, by key. The content of an object that its workload no longer lists is dropped.
    """

    def __init__(self) -> None:
        self._dependencies: dict[DependencyKey, DependencyDeclared] = {}
        self._owned: dict[str, dict[DependencyKey, None]] = {}
        self._with_content: dict[str, dict[DependencyKey, None]] = {}
        self._along = Counter[str]()
        self._sizes: dict[WorkloadKey, int] = {}
        self._workloads = Counter[str]()
        self._bytes = Counter[str]()

    @property
    def dependencies(self) -> Mapping[DependencyKey, DependencyDeclared]:
        return self._dependencies

    def usage_of_namespace(self, namespace: str) -> NamespaceUsage:
        """Returns how many workloads and bytes a namespace has declared."""
        return NamespaceUsage(self._workloads[namespace], self._bytes[namespace])

    def declaration_bytes_of(self, key: WorkloadKey) -> int:
        """Returns the bytes of one workload's declaration without the objects that go along; 0 for an unknown one."""
        return self._sizes.get(key, 0)

    def workload_bytes(self, key: WorkloadKey) -> int:
        """Returns the bytes of one workload with the objects that go along; 0 for an unknown workload."""
        return self._sizes.get(key, 0) + self._along["/".join(key)]

    def dependencies_with_content(self, key: WorkloadKey) -> list[DependencyDeclared]:
        """Returns the objects that go along with a workload now."""
        return [self._dependencies[name] for name in self._with_content.get("/".join(key), ())]

    def note_declaration(self, event: WorkloadDeclared) -> None:
        """Counts the newest declaration of a workload in place of the one before."""
        key = (event.namespace, event.name)
        if key not in self._sizes:
            self._workloads[event.namespace] += 1
        size = declaration_bytes(event)
        self._bytes[event.namespace] += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        for before in self.dependencies_with_content(key):
            if (kept := _dependency_as_kept(before, event)) is not before:
                self._replace_dependency((before.kind, before.namespace, before.name), kept)

    def store_dependency(self, event: DependencyDeclared, owner: WorkloadDeclared | None) -> None:
        """Stores an object that goes along with a workload; an older record is dropped.

        owner: the workload's declaration, if known.
        """
        key = (event.kind, event.namespace, event.name)
        known = self._dependencies.get(key)
        if known is not None and known.workload == event.workload:
            is_older = event.workload_generation < known.workload_generation
        else:  # A workload that gave the name up must not take the object from the workload that has it now.
            is_older = known is not None and not event.manifest
        if not is_older:
            self._replace_dependency(key, _dependency_as_kept(event, owner))

    def forget_workload(self, key: WorkloadKey) -> None:
        """Forgets a workload's declaration and the objects that go along with it."""
        for name in list(self._owned.get("/".join(key), ())):
            self._replace_dependency(name, None)
        size = self._sizes.pop(key, None)
        if size is not None:
            self._bytes[key[0]] -= size
            self._workloads[key[0]] -= 1
        if not self._workloads[key[0]] and not self._bytes[key[0]]:
            del self._workloads[key[0]], self._bytes[key[0]]

    def _replace_dependency(self, key: DependencyKey, event: DependencyDeclared | None) -> None:
        before = self._dependencies.pop(key, None)
        if before is not None:
            self._count_bytes(before, -len(before.manifest))
            if event is None or event.workload != before.workload:
                _remove_dependency_key(self._owned, before.workload, key)
            if before.manifest:
                _remove_dependency_key(self._with_content, before.workload, key)
        if event is not None:
            self._dependencies[key] = event
            self._count_bytes(event, len(event.manifest))
            self._owned.setdefault(event.workload, {})[key] = None
            if event.manifest:
                self._with_content.setdefault(event.workload, {})[key] = None

    def _count_bytes(self, event: DependencyDeclared, size: int) -> None:
        self._bytes[event.namespace] += size
        self._along[event.workload] += size
        if not self._along[event.workload]:
            del self._along[event.workload]


def _remove_dependency_key(names: dict[str, dict[DependencyKey, None]], workload: str, key: DependencyKey) -> None:
    del names[workload][key]
    if not names[workload]:
        del names[workload]


def _dependency_as_kept(event: DependencyDeclared, owner: WorkloadDeclared | None) -> DependencyDeclared:
    """Returns the record to store. It has no manifest if a newer declaration of its workload does not list it."""
    if owner is None or owner.generation < event.workload_generation or not event.manifest:
        return event
    listed = any((one.kind, one.name) == (event.kind, event.name) for one in owner.dependencies)
    return event if listed else replace(event, manifest=b"")
