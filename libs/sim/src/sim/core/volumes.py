"""The limits that the volumes of a pod's claims set on nodes, as in the scheduler's VolumeBinding and VolumeZone.

There is no volume controller: a claim is bound when its writer says so, and an unbound claim can bind on any node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.kinds import Object
from sim.core.selectors import Labels, Requirement, Selector, matches_labels, requirements_of
from sim.core.shape import PodShape
from sim.core.store import Store

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OLD_ZONE, _OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_NEWER = {_OLD_ZONE: _ZONE, _OLD_REGION: _REGION, _ZONE: _ZONE, _REGION: _REGION}
_IN_NO_ZONE: Selector = tuple(Requirement(key, "DoesNotExist") for key in _NEWER)


@dataclass(frozen=True, slots=True)
class VolumeRule:
    """Refuses every node that none of the terms matches. refusal: the scheduler's reason for such a node."""

    refusal: str
    terms: tuple[Selector, ...] = ()

    def allows_node(self, labels: Labels) -> bool:
        return any(matches_labels(term, labels) for term in self.terms)


VolumeRules = tuple[VolumeRule, ...]


def volume_rules_of(shape: PodShape, store: Store) -> VolumeRules:
    return tuple(rule for name in shape.claims for rule in _rules_of_claim(shape.namespace, name, store))


def _rules_of_claim(namespace: str, name: str, store: Store) -> Iterator[VolumeRule]:
    claim = store.get_object("persistentvolumeclaims", (namespace, name))
    if claim is None:
        yield VolumeRule(f'persistentvolumeclaim "{name}" not found')
        return
    if "deletionTimestamp" in claim["metadata"]:
        yield VolumeRule(f'persistentvolumeclaim "{name}" is being deleted')
    volume_name = (claim.get("spec") or {}).get("volumeName", "")
    if not volume_name or _BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
        return
    volume = store.get_object("persistentvolumes", ("", volume_name))
    if volume is None:
        yield VolumeRule("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
    else:
        yield from _rules_of_volume(volume)


def _rules_of_volume(volume: Object) -> Iterator[VolumeRule]:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required:
        terms = (_term_selector(term) for term in required["nodeSelectorTerms"])
        yield VolumeRule("node(s) didn't match PersistentVolume's node affinity", tuple(term for term in terms if term))
    labels = volume["metadata"].get("labels") or {}
    for key, newer in _NEWER.items():
        values = frozenset(labels.get(key, "").split("__"))
        # A volume without this label is in no zone or region, so it binds its pods to none.
        if "" in values:
            continue
        instead = (Requirement(key, "DoesNotExist"), Requirement(newer, "In", values))
        terms_of_key = (_IN_NO_ZONE, (Requirement(key, "In", values),), *((instead,) if newer != key else ()))
        yield VolumeRule("node(s) had no available volume zone", terms_of_key)


def _term_selector(declared: Mapping[str, Any]) -> Selector:
    return requirements_of(declared.get("matchExpressions") or ())
