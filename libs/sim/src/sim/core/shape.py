"""The properties of a pod that the scheduler reads, parsed once for all pods of a template."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from sim.core.kinds import Object
from sim.core.pod_config import Needed, config_needed_by_pod
from sim.core.quantity import parse_amount
from sim.core.selectors import Requirement, Selector, matches_labels, requirements_of, selector_of

HostPort = tuple[str, str, int]
_ANY_ADDRESS = "0.0.0.0"
_FOR_SCORE = {"cpu": 100, "memory": 200 << 20}


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str
    exists: bool
    value: str
    effect: str
    seconds: int | None

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        if (self.effect and self.effect != effect) or (self.key and self.key != key):
            return False
        return self.exists or (bool(self.key) and self.value == value)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Selects pods, and the node label by which they are counted."""

    topology_key: str
    selector: Selector | None
    """None matches nothing."""
    namespaces: frozenset[str] | None
    """None matches all namespaces."""

    def matches_pod(self, shape: "PodShape") -> bool:
        if self.selector is None or (self.namespaces is not None and shape.namespace not in self.namespaces):
            return False
        return matches_labels(self.selector, shape.labels)


@dataclass(frozen=True, slots=True)
class Spread:
    term: PodTerm
    max_skew: int
    min_domains: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodShape:
    """The properties of a pod that the scheduler reads. Equal pods have the same shape object."""

    namespace: str
    labels: Mapping[str, str]
    requests: tuple[tuple[str, int], ...]
    """Amounts above zero. The first one is `pods`: 1."""
    score_cpu_millis: int
    score_memory_bytes: int
    tolerations: tuple[Toleration, ...]
    node_selector: Mapping[str, str]
    node_terms: tuple[Selector, ...] | None
    """At least one of them must match. None requires nothing."""
    host_ports: frozenset[HostPort]
    spread: tuple[Spread, ...]
    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    claims: tuple[str, ...]
    config: tuple[Needed, ...]
    """ConfigMaps and Secrets that must exist before the pod's containers are created."""

    @property
    def looks_at_pods(self) -> bool:
        return bool(self.spread or self.affinity or self.anti_affinity)

    def tolerates(self, taint: tuple[str, str, str]) -> bool:
        return any(toleration.tolerates(*taint) for toleration in self.tolerations)


class ShapeBook:
    """Finds the shape of a pod. Shapes that nobody holds are forgotten."""

    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()
        self._encoder = msgspec.json.Encoder()

    def shape_of(self, pod: Object) -> PodShape:
        metadata, spec = pod["metadata"], pod["spec"]
        labels = metadata.get("labels") or {}
        asked = {field: value for field, value in spec.items() if field != "nodeName"}
        key = self._encoder.encode((metadata.get("namespace"), labels, asked))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = parse_shape(metadata.get("namespace", ""), labels, spec)
        return shape


def parse_shape(namespace: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> PodShape:
    requests = pod_requests(spec)
    affinity = spec.get("affinity") or {}
    node_affinity = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return PodShape(
        namespace=namespace,
        labels=labels,
        requests=(("pods", 1), *((name, amount) for name, amount in requests.items() if amount > 0)),
        score_cpu_millis=requests.get("cpu") or _FOR_SCORE["cpu"],
        score_memory_bytes=requests.get("memory") or _FOR_SCORE["memory"],
        tolerations=tuple(_parse_toleration(one) for one in spec.get("tolerations") or ()),
        node_selector=spec.get("nodeSelector") or {},
        node_terms=None if node_affinity is None else _parse_node_terms(node_affinity),
        host_ports=_host_ports(spec),
        spread=tuple(_spread_constraints(spec, labels, namespace)),
        affinity=_affinity_terms(affinity.get("podAffinity"), labels, namespace),
        anti_affinity=_affinity_terms(affinity.get("podAntiAffinity"), labels, namespace),
        claims=tuple(
            source["claimName"] for one in spec.get("volumes") or () if (source := one.get("persistentVolumeClaim"))
        ),
        config=tuple(config_needed_by_pod(spec)),
    )


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Returns the resources a node must have free: of containers and sidecars together, or the most during start-up."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add_amounts(total, _container_requests(container))
    sidecars: dict[str, int] = {}
    widest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        moment = dict(sidecars)
        _add_amounts(moment, _container_requests(container))
        if container.get("restartPolicy") == "Always":
            sidecars = moment
        _raise_amounts(widest, moment)
    _add_amounts(total, sidecars)
    _raise_amounts(total, widest)
    for name, text in ((spec.get("resources") or {}).get("requests") or {}).items():
        total[name] = parse_amount(name, text)
    _add_amounts(total, {name: parse_amount(name, text) for name, text in (spec.get("overhead") or {}).items()})
    return total


def _container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    declared = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_amount(name, text) for name, text in declared.items()}


def _add_amounts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_amounts(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


def _parse_toleration(declared: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=declared.get("key", ""),
        exists=declared.get("operator", "Equal") == "Exists",
        value=declared.get("value", ""),
        effect=declared.get("effect", ""),
        seconds=declared.get("tolerationSeconds"),
    )


def _parse_node_terms(declared: Mapping[str, Any]) -> tuple[Selector, ...]:
    terms = []
    for term in declared.get("nodeSelectorTerms") or ():
        fields = [
            # Only metadata.name can be matched as a field, so nodes offer it as a label of that name.
            Requirement("metadata.name", one["operator"], frozenset(one.get("values") or ()))
            for one in term.get("matchFields") or ()
        ]
        selector = (*requirements_of(term.get("matchExpressions") or ()), *fields)
        if selector:
            terms.append(selector)
    return tuple(terms)


def _host_ports(spec: Mapping[str, Any]) -> frozenset[HostPort]:
    lasting = [*(spec.get("containers") or ())]
    lasting += [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    in_host = spec.get("hostNetwork", False)
    found = set()
    for container in lasting:
        for port in container.get("ports") or ():
            taken = port.get("hostPort") or (port.get("containerPort", 0) if in_host else 0)
            if taken:
                found.add((port.get("hostIP") or _ANY_ADDRESS, port.get("protocol") or "TCP", taken))
    return frozenset(found)


def ports_clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    return any(
        mine[1:] == theirs[1:] and (mine[0] == theirs[0] or _ANY_ADDRESS in (mine[0], theirs[0]))
        for mine in wanted
        for theirs in taken
    )


def _spread_constraints(spec: Mapping[str, Any], labels: Mapping[str, str], namespace: str) -> Iterable[Spread]:
    for declared in spec.get("topologySpreadConstraints") or ():
        if declared.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            term = PodTerm(declared["topologyKey"], _pod_selector(declared, labels), frozenset({namespace}))
            yield Spread(term, declared.get("maxSkew", 1), declared.get("minDomains") or 1)


def _affinity_terms(declared: Any, labels: Mapping[str, str], namespace: str) -> tuple[PodTerm, ...]:
    required = (declared or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        PodTerm(one["topologyKey"], _pod_selector(one, labels), _namespaces_of_term(one, namespace)) for one in required
    )


def _pod_selector(declared: Mapping[str, Any], labels: Mapping[str, str]) -> Selector | None:
    if declared.get("labelSelector") is None:
        return None
    same = tuple(
        Requirement(key, "In", frozenset({labels[key]}))
        for key in declared.get("matchLabelKeys") or ()
        if key in labels
    )
    return (*selector_of(declared["labelSelector"]), *same)


def _namespaces_of_term(term: Mapping[str, Any], own: str) -> frozenset[str] | None:
    if term.get("namespaceSelector") is not None:
        return None
    return frozenset(term.get("namespaces") or (own,))
