"""Finds the nodes on which bound volumes let pods run.

Source: the kube-scheduler's plugins VolumeBinding, for bound claims, and VolumeZone (v1.36). Claims and volumes come in
two streams. So they are kept separately, and combined when they are read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from spillway.kubernetes import objects
from spillway.kubernetes.pod_shape import is_integer
from spillway.kubernetes.specs import RequiredNodeSelectorTerm
from spillway.model import NodeTerm, Requirement, VolumeClaim, VolumeLimit

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
ONCE = ("ReadWriteOncePod", "ReadWriteOnce")
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
LABEL_OF_TODAY = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
NOWHERE_LABELLED = NodeTerm(tuple(Requirement(key, "DoesNotExist", ()) for key in LABEL_OF_TODAY), ())
"""The term for a node without any of these labels, which VolumeZone takes to be in all zones."""
IN_ALL = "__"
"""The separator between the zones of a volume that is in several."""


class _Claim(NamedTuple):
    """A volume claim.

    volume: the name of its volume; empty until it is bound.
    refused: the reason why no pod with this claim is scheduled; empty if pods are.
    once: ReadWriteOncePod or ReadWriteOnce, if it has no other access mode.
    """

    namespace: str
    name: str
    volume: str
    refused: str
    once: str


class _Volume(NamedTuple):
    """A volume.

    limits: a node must meet each limit. A limit is a tuple of node terms, and the node must match one of them.
    attached: "csi" for a volume of a CSI driver; else empty.
    """

    name: str
    limits: tuple[tuple[NodeTerm, ...], ...]
    attached: str


class VolumeTable:
    """The volume claims and volumes of a cluster. For claims beyond claims_max, only the namespace is kept.

    dirty: namespaces whose claims may have changed; the reader clears it.
    """

    def __init__(self, dirty: set[str], claims_max: int) -> None:
        self._dirty = dirty
        self._claims_max = claims_max
        self._claims: dict[str, _Claim] = {}
        self._uids_by_namespace: dict[str, set[str]] = {}
        self._uids_by_volume: dict[str, set[str]] = {}
        self._left_out: dict[str, str] = {}
        self._left_out_in: Counter[str] = Counter()
        self._volumes: dict[str, _Volume] = {}
        self._uid_by_volume_name: dict[str, str] = {}

    # ── Claims ──────────────────────────────────────────────────────────────────────────────────────────────────

    def upsert_claim(self, item: objects.PersistentVolumeClaim) -> None:
        uid, claim = item.metadata.uid, _read_claim(item)
        before = self._claims.get(uid)
        if before == claim:
            return
        self._drop_left_out_claim(uid)
        if before is None and len(self._claims) >= self._claims_max:
            self._left_out[uid] = claim.namespace
            self._left_out_in[claim.namespace] += 1
            self._dirty.add(claim.namespace)
            return
        if before is not None:
            self._forget_claim(uid, before)
        self._claims[uid] = claim
        self._uids_by_namespace.setdefault(claim.namespace, set()).add(uid)
        self._uids_by_volume.setdefault(claim.volume, set()).add(uid)
        self._dirty.add(claim.namespace)

    def remove_claim(self, uid: str) -> None:
        self._drop_left_out_claim(uid)
        claim = self._claims.get(uid)
        if claim is not None:
            self._forget_claim(uid, claim)

    def retain_claims(self, uids: frozenset[str]) -> None:
        for uid in [uid for uid in chain(self._claims, self._left_out) if uid not in uids]:
            self.remove_claim(uid)

    def _drop_left_out_claim(self, uid: str) -> None:
        namespace = self._left_out.pop(uid, None)
        if namespace is not None:
            self._left_out_in[namespace] -= 1
            self._dirty.add(namespace)

    def _forget_claim(self, uid: str, claim: _Claim) -> None:
        del self._claims[uid]
        for by_key, key in ((self._uids_by_namespace, claim.namespace), (self._uids_by_volume, claim.volume)):
            by_key[key].discard(uid)
            if not by_key[key]:
                del by_key[key]
        self._dirty.add(claim.namespace)

    # ── Volumes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def upsert_volume(self, item: objects.PersistentVolume) -> None:
        uid, volume = item.metadata.uid, _read_volume(item)
        self._uid_by_volume_name[volume.name] = uid
        if self._volumes.get(uid) != volume:
            self._volumes[uid] = volume
            self._mark_namespaces_of_volume(volume.name)

    def remove_volume(self, uid: str) -> None:
        volume = self._volumes.pop(uid, None)
        if volume is not None and self._uid_by_volume_name.get(volume.name) == uid:
            del self._uid_by_volume_name[volume.name]
            self._mark_namespaces_of_volume(volume.name)

    def retain_volumes(self, uids: frozenset[str]) -> None:
        for uid in [uid for uid in self._volumes if uid not in uids]:
            self.remove_volume(uid)

    def _mark_namespaces_of_volume(self, volume: str) -> None:
        self._dirty.update(self._claims[uid].namespace for uid in self._uids_by_volume.get(volume, ()))

    # ── What is said ────────────────────────────────────────────────────────────────────────────────────────────

    def namespaces_with_claims(self) -> set[str]:
        return {*self._uids_by_namespace, *self._left_out.values()}

    def claims_in_namespace(self, namespace: str) -> tuple[VolumeClaim, ...]:
        found = (self._claim_with_limits(self._claims[uid]) for uid in self._uids_by_namespace.get(namespace, ()))
        return tuple(sorted(found, key=lambda claim: claim.name))

    def has_left_out_claims(self, namespace: str) -> bool:
        """Returns whether claims of the namespace are not kept, because there are more than claims_max."""
        return self._left_out_in[namespace] > 0

    def _claim_with_limits(self, claim: _Claim) -> VolumeClaim:
        if claim.refused:
            return VolumeClaim(claim.name, True, (VolumeLimit(claim.refused),), claim.once)
        volume = self._volumes.get(self._uid_by_volume_name.get(claim.volume, ""))
        if volume is None:  # The volumes' stream may lag behind. If the volume is gone, its claim becomes Lost.
            return VolumeClaim(claim.name, False, (), claim.once)
        limits = tuple(VolumeLimit(f"volume of claim {claim.name}", terms) for terms in volume.limits)
        return VolumeClaim(claim.name, True, limits, claim.once, volume.attached)


def _read_claim(item: objects.PersistentVolumeClaim) -> _Claim:
    name, modes = item.metadata.name, item.spec.access_modes
    refused = ""
    if item.metadata.deletion_timestamp is not None:
        refused = f"volume claim {name} is being deleted"
    elif item.status.phase == "Lost":
        refused = f"volume claim {name} has lost its volume"
    bound = item.spec.volume_name if BIND_COMPLETED in item.metadata.annotations else ""
    once = next((mode for mode in ONCE if mode in modes), "") if all(mode in ONCE for mode in modes) else ""
    return _Claim(item.metadata.namespace, name, bound, refused, once)


def _read_volume(item: objects.PersistentVolume) -> _Volume:
    affinity, limits = item.spec.node_affinity, list[tuple[NodeTerm, ...]]()
    if affinity is not None and affinity.required is not None:
        limits.append(tuple(_satisfiable_terms(affinity.required.node_selector_terms)))
    limits.extend(_zone_limits(item.metadata.labels))
    return _Volume(item.metadata.name, tuple(limits), "csi" if item.spec.csi is not None else "")


def _satisfiable_terms(terms: Iterable[RequiredNodeSelectorTerm]) -> Iterator[NodeTerm]:
    """Yields the terms that a node can meet.

    VolumeBinding sees only a node's labels, so match fields have no effect.
    """
    for term in terms:
        if not (term.match_expressions or term.match_fields):
            continue
        labels = tuple(Requirement(entry.key, entry.operator, entry.values) for entry in term.match_expressions)
        if all(map(_is_readable, labels)):
            yield NodeTerm(labels, ())


def _is_readable(requirement: Requirement) -> bool:
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and is_integer(requirement.values[0])
    return False


def _zone_limits(labels: dict[str, str]) -> Iterator[tuple[NodeTerm, ...]]:
    """Yields the zone and region limits of a volume's labels.

    An older label of the volume also means the node's label of today, if the node does not have the older one.
    """
    for key, newer in LABEL_OF_TODAY.items():
        values = tuple(value.strip() for value in labels.get(key, "").split(IN_ALL))
        if not all(values):
            continue
        terms = [NOWHERE_LABELLED, NodeTerm((Requirement(key, "In", values),), ())]
        if newer != key:
            absent = Requirement(key, "DoesNotExist", ())
            terms.append(NodeTerm((absent, Requirement(newer, "In", values)), ()))
        yield tuple(terms)
