"""Reads a Karmada PropagationPolicy as one of ours, and names what of it says nothing here.

What would let a workload run where it must not is refused; what merely has no effect is a warning in the answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.core.manifests import policy as policies
from spillway.api import RequestError, invalid
from spillway.model import Policy
from spillway.pod_shape import LabelSelector, convert, matches_labels, selector_of

KIND = "PropagationPolicy"
API_VERSION = "policy.karmada.io/v1alpha1"

LOST_TAINTS = ("cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable")
FIELDS = {"region": "regions", "zone": "zones"}

SPEC_WITHOUT_EFFECT = {
    "association": "what goes with a workload is applied with it",
    "propagateDeps": "what goes with a workload is applied with it",
    "dependentOverrides": "there are no overrides",
    "priority": "a workload has the one policy that is applied with it",
    "preemption": "a workload has the one policy that is applied with it",
    "schedulerName": "one planner places all",
    "conflictResolution": "an object that is there already is adopted by name, never overwritten",
    "activationPreference": "a policy is in force once it is applied",
    "suspension": "a brake (freeze) holds replicas where they are",
    "preserveResourcesOnDeletion": "release gives a workload back with its objects",
    "schedulePriority": "a PlacementPolicy's priority says who waits shorter; priority classes are not read",
}
PLACEMENT = ("clusterAffinity", "clusterAffinities", "clusterTolerations", "spreadConstraints", "replicaScheduling")
AFFINITY = ("clusterNames", "exclude", "labelSelector", "fieldSelector")


@dataclass(frozen=True, slots=True)
class Read:
    """The policy, and what of the manifest has no effect, for people."""

    policy: Policy
    warnings: tuple[str, ...]


def read(manifest: Mapping[str, Any], workload: Mapping[str, Any]) -> Read:
    """A PropagationPolicy for this workload. RequestError that names the field, the value and what was expected."""
    if manifest.get("apiVersion") != API_VERSION:
        raise invalid(f"{KIND}.apiVersion", manifest.get("apiVersion"), API_VERSION)
    spec = _object(manifest.get("spec"), f"{KIND}.spec")
    _check_selects(spec.get("resourceSelectors"), workload)
    placement = _object(spec.get("placement", {}), f"{KIND}.spec.placement")
    reader = _Reader()
    ours = reader.spec(spec, placement)
    try:
        found = policies.policy_of({"apiVersion": policies.API_VERSION, "kind": policies.KIND, "spec": ours})
    except RequestError as error:
        raise RequestError(error.code, f"{KIND}, read as a {error.text}") from None
    return Read(found, tuple(reader.warnings))


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(where, value, "an object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid(where, value, "a list")
    return value


def _check_selects(selectors: object, workload: Mapping[str, Any]) -> None:
    """Its selectors mean the workload that it is applied with."""
    where = f"{KIND}.spec.resourceSelectors"
    metadata = _object(workload.get("metadata"), "metadata")
    if not any(
        _selects(_object(entry, f"{where}[{index}]"), workload, metadata, f"{where}[{index}]")
        for index, entry in enumerate(_list(selectors, where))
    ):
        text = f"one that means {workload.get('kind')} {metadata.get('name')}, which it is applied with"
        raise invalid(where, selectors, text)


def _selects(entry: Mapping[str, Any], workload: Mapping[str, Any], metadata: Mapping[str, Any], where: str) -> bool:
    if any(entry.get(field) != workload.get(field) for field in ("apiVersion", "kind")):
        return False
    namespace = metadata.get("namespace") or "default"
    if (entry.get("namespace") or namespace) != namespace:
        return False
    if entry.get("name"):
        return bool(entry["name"] == metadata.get("name"))
    labels = convert(entry.get("labelSelector", {}), LabelSelector, f"{where}.labelSelector")
    return matches_labels(selector_of(labels, where).requirements, metadata.get("labels") or {})


class _Reader:
    """Builds the spec of a PlacementPolicy, and collects what has no effect."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def spec(self, spec: Mapping[str, Any], placement: Mapping[str, Any]) -> dict[str, Any]:
        for field in spec:
            if field in SPEC_WITHOUT_EFFECT:
                self._warn(f"spec.{field}", SPEC_WITHOUT_EFFECT[field])
            elif field == "failover":
                self._failover(_object(spec[field], f"{KIND}.spec.failover"))
            elif field not in ("resourceSelectors", "placement"):
                self._warn(f"spec.{field}", "not known here")
        for field in placement:
            if field not in PLACEMENT:
                self._warn(f"spec.placement.{field}", "not known here")
        tiers, alternatives = self._tiers(placement)
        strategy = self._strategy(placement, len(tiers) > 1 and alternatives)
        ours: dict[str, Any] = {"strategy": strategy, "tiers": tiers}
        after = self._after(placement.get("clusterTolerations", []))
        return ours | ({"onClusterLoss": {"after": after}} if after else {})

    def _warn(self, field: str, why: str) -> None:
        self.warnings.append(f"{KIND}.{field} has no effect: {why}")

    def _failover(self, failover: Mapping[str, Any]) -> None:
        for field in failover:
            self._warn(
                f"spec.failover.{field}",
                "a cluster's loss is spec.placement.clusterTolerations; replicas that do not run are placed elsewhere",
            )

    def _tiers(self, placement: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """Tiers, and whether only one of them is to be used."""
        where = f"{KIND}.spec.placement"
        if "clusterAffinity" in placement and "clusterAffinities" in placement:
            raise invalid(f"{where}.clusterAffinities", "both", "clusterAffinity or clusterAffinities")
        if "clusterAffinities" not in placement:
            affinity = _object(placement.get("clusterAffinity", {}), f"{where}.clusterAffinity")
            return [{"name": "all", "clusters": self._selector(affinity, f"{where}.clusterAffinity")}], False
        terms = _list(placement["clusterAffinities"], f"{where}.clusterAffinities")
        tiers = [self._tier(term, f"{where}.clusterAffinities[{index}]") for index, term in enumerate(terms)]
        overflow = [
            (term["overflowAffinities"], f"{where}.clusterAffinities[{index}].overflowAffinities")
            for index, term in enumerate(terms)
            if term.get("overflowAffinities")
        ]
        if overflow and len(terms) > 1:
            raise invalid(overflow[0][1], "given", "none: of several clusterAffinities only one is used")
        for more, at in overflow:
            tiers += [self._tier(term, f"{at}[{index}]") for index, term in enumerate(_list(more, at))]
        return tiers, not overflow

    def _tier(self, term: object, where: str) -> dict[str, Any]:
        affinity = _object(term, where)
        return {"name": affinity.get("affinityName", ""), "clusters": self._selector(affinity, where)}

    def _selector(self, affinity: Mapping[str, Any], where: str) -> dict[str, Any]:
        for field in affinity:
            if field not in (*AFFINITY, "affinityName", "overflowAffinities"):
                raise invalid(f"{where}.{field}", affinity[field], f"one of {', '.join(AFFINITY)}")
        ours: dict[str, Any] = {
            "names": affinity.get("clusterNames", []),
            "excluded": affinity.get("exclude", []),
            "labelSelector": affinity.get("labelSelector", {}),
        }
        fields = _object(affinity.get("fieldSelector", {}), f"{where}.fieldSelector").get("matchExpressions", [])
        for index, entry in enumerate(_list(fields, f"{where}.fieldSelector.matchExpressions")):
            at = f"{where}.fieldSelector.matchExpressions[{index}]"
            requirement = _object(entry, at)
            if not isinstance(requirement.get("key"), str) or requirement["key"] not in FIELDS:
                raise invalid(f"{at}.key", requirement.get("key"), " or ".join(FIELDS))
            if requirement.get("operator") != "In":
                raise invalid(f"{at}.operator", requirement.get("operator"), "In")
            if FIELDS[requirement["key"]] in ours:
                raise invalid(f"{at}.key", requirement["key"], "each field once")
            ours[FIELDS[requirement["key"]]] = requirement.get("values", [])
        return ours

    def _strategy(self, placement: Mapping[str, Any], alternatives: bool) -> dict[str, Any]:
        where = f"{KIND}.spec.placement.replicaScheduling"
        scheduling = _object(placement.get("replicaScheduling", {"replicaSchedulingType": "Duplicated"}), where)
        kind = scheduling.get("replicaSchedulingType", "Divided")
        preference = scheduling.get("replicaDivisionPreference", "Weighted")
        weights = _object(scheduling.get("weightPreference", {}), f"{where}.weightPreference")
        if kind not in ("Duplicated", "Divided"):
            raise invalid(f"{where}.replicaSchedulingType", kind, "Duplicated or Divided")
        if preference not in ("Weighted", "Aggregated"):
            raise invalid(f"{where}.replicaDivisionPreference", preference, "Weighted or Aggregated")
        if kind == "Duplicated":
            return self._named("Duplicated", placement, alternatives)
        if preference == "Aggregated":
            return self._named("KarmadaAggregated", placement, alternatives)
        dynamic = weights.get("dynamicWeight")
        if dynamic not in (None, "", "AvailableReplicas"):
            raise invalid(f"{where}.weightPreference.dynamicWeight", dynamic, "AvailableReplicas")
        if dynamic:
            return self._named("KarmadaDynamicWeight", placement, alternatives)
        strategy: dict[str, Any] = {"name": "KarmadaStaticWeight"}
        if placement.get("spreadConstraints"):
            self._warn("spec.placement.spreadConstraints", "static weights do not look at them, there as here")
        rules = self._weights(weights.get("staticWeightList", []), f"{where}.weightPreference.staticWeightList")
        return strategy | ({"weights": list(rules)} if rules else {}) | _tiers_used(alternatives)

    def _named(self, name: str, placement: Mapping[str, Any], alternatives: bool) -> dict[str, Any]:
        spread = list(self._spread(placement.get("spreadConstraints", [])))
        return {"name": name} | ({"spread": spread} if spread else {}) | _tiers_used(alternatives)

    def _weights(self, rules: object, where: str) -> list[dict[str, Any]]:
        return [
            {
                "weight": _object(rule, f"{where}[{index}]").get("weight"),
                "clusters": self._selector(
                    _object(rule.get("targetCluster", {}), f"{where}[{index}].targetCluster"),
                    f"{where}[{index}].targetCluster",
                ),
            }
            for index, rule in enumerate(_list(rules, where))
        ]

    def _spread(self, constraints: object) -> Iterator[dict[str, Any]]:
        where = f"{KIND}.spec.placement.spreadConstraints"
        for index, entry in enumerate(_list(constraints, where)):
            constraint = _object(entry, f"{where}[{index}]")
            if constraint.get("spreadByLabel"):
                raise invalid(f"{where}[{index}].spreadByLabel", constraint["spreadByLabel"], "spreadByField")
            most = {"max": constraint["maxGroups"]} if constraint.get("maxGroups") else {}
            by = constraint.get("spreadByField", "cluster")
            yield {"by": by, "min": constraint.get("minGroups") or 1} | most

    def _after(self, tolerations: object) -> str:
        """How long a lost cluster is borne: the shortest that a toleration of its loss gives; empty when none does."""
        seconds: list[int] = []
        never = False
        for index, entry in enumerate(_list(tolerations, f"{KIND}.spec.placement.clusterTolerations")):
            toleration = _object(entry, f"{KIND}.spec.placement.clusterTolerations[{index}]")
            if toleration.get("key") not in LOST_TAINTS or toleration.get("effect") not in (None, "", "NoExecute"):
                field = f"spec.placement.clusterTolerations[{index}]"
                self._warn(field, f"clusters have no taints but their loss: {', '.join(LOST_TAINTS)}, NoExecute")
            elif isinstance(toleration.get("tolerationSeconds"), int):
                seconds.append(toleration["tolerationSeconds"])
            else:
                never = True
        if seconds:
            return self._bounded(min(seconds))
        return policies.NEVER if never else ""

    def _bounded(self, seconds: int) -> str:
        bounded = min(max(seconds, policies.LOSS_SECONDS_MIN), policies.LOSS_SECONDS_MAX)
        if bounded != seconds:
            self._warn("spec.placement.clusterTolerations.tolerationSeconds", f"{seconds} s is taken as {bounded} s")
        if bounded % 60 or bounded < 60:
            return f"{bounded}s"
        return f"{bounded // 60}m"


def _tiers_used(alternatives: bool) -> dict[str, Any]:
    return {"tiers": "Alternatives"} if alternatives else {}
