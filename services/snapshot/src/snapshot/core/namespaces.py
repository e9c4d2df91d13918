"""Keeps the namespaces of a cluster: their labels, for namespace selectors, their quotas and their volume claims."""

from collections.abc import Mapping
from typing import NamedTuple

from snapshot.core.volumes import VolumeTable
from spillway.kubernetes import objects
from spillway.model import LabelSet, NamespaceFacts, Quota, Requirement

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server gives to each namespace. It is implied, so records do not contain it."""
SYSTEM_NAMESPACE = "kube-system"
INT64_MAX = 2**63 - 1


class _PlacedNamespace(NamedTuple):
    namespace: str
    quota: Quota


class NamespaceTable:
    """The namespaces of a cluster.

    dirty: namespaces that may have changed since the reader cleared it.
    api_server: the uid of kube-system, which identifies the API server; empty while there is none.
    volumes: the volume claims and the volumes that they are bound to.
    """

    def __init__(self, volume_claims_max: int) -> None:
        self.dirty: set[str] = set()
        self.volumes = VolumeTable(self.dirty, volume_claims_max)
        self.api_server = ""
        self._labels: dict[str, LabelSet] = {}
        self._name_by_uid: dict[str, str] = {}
        self._uids_by_name: dict[str, set[str]] = {}
        self._quotas: dict[str, _PlacedNamespace] = {}
        self._uids_by_namespace: dict[str, set[str]] = {}

    def upsert_namespace(self, item: objects.AnyObject) -> None:
        if self._name_by_uid.get(item.metadata.uid, item.metadata.name) != item.metadata.name:
            self.remove_namespace(item.metadata.uid)
        labels = tuple(sorted(entry for entry in item.metadata.labels.items() if entry[0] != NAME_LABEL))
        self._name_by_uid[item.metadata.uid] = item.metadata.name
        self._uids_by_name.setdefault(item.metadata.name, set()).add(item.metadata.uid)
        if item.metadata.name == SYSTEM_NAMESPACE and self.api_server != item.metadata.uid:
            self.api_server = item.metadata.uid
            self.dirty.add(SYSTEM_NAMESPACE)
        if self._labels.get(item.metadata.name) != labels:
            self._labels[item.metadata.name] = labels
            self.dirty.add(item.metadata.name)

    def remove_namespace(self, uid: str) -> None:
        name = self._name_by_uid.pop(uid, None)
        if uid == self.api_server:
            self.api_server = ""
        if name is None:
            return
        self._uids_by_name[name].discard(uid)
        if not self._uids_by_name[name]:
            del self._uids_by_name[name]
            self._labels.pop(name, None)
            self.dirty.add(name)

    def retain_namespaces(self, uids: frozenset[str]) -> None:
        for uid in [uid for uid in self._name_by_uid if uid not in uids]:
            self.remove_namespace(uid)

    def upsert_quota(self, item: objects.ResourceQuota) -> None:
        placed = _PlacedNamespace(item.metadata.namespace, read_quota(item))
        if self._quotas.get(item.metadata.uid) != placed:
            self._quotas[item.metadata.uid] = placed
            self._uids_by_namespace.setdefault(placed.namespace, set()).add(item.metadata.uid)
            self.dirty.add(placed.namespace)

    def remove_quota(self, uid: str) -> None:
        placed = self._quotas.pop(uid, None)
        if placed is not None:
            self._uids_by_namespace[placed.namespace].discard(uid)
            self.dirty.add(placed.namespace)

    def retain_quotas(self, uids: frozenset[str]) -> None:
        for uid in [uid for uid in self._quotas if uid not in uids]:
            self.remove_quota(uid)

    def namespace_names(self) -> set[str]:
        return self._labels.keys() | self._uids_by_namespace.keys() | self.volumes.namespaces_with_claims()

    def namespace_facts(self, name: str) -> NamespaceFacts | None:
        """Returns the facts of a namespace; None when there are none."""
        quotas = (self._quotas[uid].quota for uid in self._uids_by_namespace.get(name, ()))
        found = NamespaceFacts(
            name,
            self._labels.get(name, ()),
            tuple(sorted(quotas, key=lambda quota: quota.name)),
            self.volumes.claims_in_namespace(name),
            self.volumes.has_left_out_claims(name),
        )
        return found if found != NamespaceFacts(name, (), ()) else None


def read_quota(item: objects.ResourceQuota) -> Quota:
    """Reads a quota.

    An unreadable limit counts as 0, and an unreadable use as the largest number. So nothing more fits in the quota.
    """
    hard = {name: _quota_amount(name, text, 0) for name, text in item.spec.hard.items()}
    used = {name: _quota_amount(name, text, INT64_MAX) for name, text in item.status.used.items() if name in hard}
    selected = item.spec.scope_selector.match_expressions if item.spec.scope_selector is not None else ()
    return Quota(
        name=item.metadata.name,
        hard=_sorted_amounts(hard),
        used=_sorted_amounts(used),
        scopes=(
            *(Requirement(scope, "Exists", ()) for scope in item.spec.scopes),
            *(Requirement(entry.scope_name, entry.operator, entry.values) for entry in selected),
        ),
    )


def _quota_amount(name: str, text: objects.Quantity, unreadable: int) -> int:
    try:
        return objects.parse_quantity(text, milli=name.rpartition(".")[2] == "cpu")
    except ValueError:
        return unreadable


def _sorted_amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
