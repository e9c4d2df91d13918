"""Reads a Karmada PropagationPolicy as a PlacementPolicy, and warns about fields that have no effect here.

A field is refused if a workload could run where it must not when the field were ignored. An unknown field of the
placement is refused, too, as its meaning is not known. Other fields without effect give a warning in the answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.core.manifests import policy as policies
from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes.pod_shape import convert_manifest_part, matches_labels, selector_of
from spillway.kubernetes.scheduling_spec import LabelSelector
from spillway.model import Policy

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
    "suspension": "nothing is suspended by it",
    "preserveResourcesOnDeletion": "disown gives a workload back with its objects",
    "schedulePriority": "a PlacementPolicy's priority says who waits shorter; priority classes are not read",
}
MANIFEST = ("apiVersion", "kind", "metadata", "spec")
PLACEMENT = ("clusterAffinity", "clusterAffinities", "clusterTolerations", "spreadConstraints", "replicaScheduling")
AFFINITY = ("clusterNames", "exclude", "labelSelector", "fieldSelector")
NAMED_AFFINITY = (*AFFINITY, "affinityName")
SELECTOR_FIELDS = {
    "names": "clusterNames",
    "excluded": "exclude",
    "labelSelector": "labelSelector",
    "regions": "fieldSelector.matchExpressions",
    "zones": "fieldSelector.matchExpressions",
}
"""For each field of our selector, the field of the Karmada affinity that it comes from."""
RESOURCE_SELECTOR = ("apiVersion", "kind", "namespace", "name", "labelSelector")
SCHEDULING = ("replicaSchedulingType", "replicaDivisionPreference", "weightPreference")
WEIGHTS = ("staticWeightList", "dynamicWeight")
WEIGHT = ("targetCluster", "weight")
SPREAD = ("spreadByField", "spreadByLabel", "minGroups", "maxGroups")
TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
WITH_ALTERNATIVES = ("KarmadaAggregated", "KarmadaDynamicWeight")


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """The policy of a manifest, and warnings about fields of the manifest without effect.

    words: translates an error text about our policy into a text that names the fields of this manifest.
    """

    policy: Policy
    warnings: tuple[str, ...]
    words: Callable[[str], str] = str


def read_propagation_policy(manifest: Mapping[str, Any], workload: Mapping[str, Any]) -> ReadPolicy:
    """Reads a PropagationPolicy for this workload.

    Raises RequestError with the field, the value and what was expected.
    """
    if manifest.get("apiVersion") != API_VERSION:
        raise invalid_argument_error(f"{KIND}.apiVersion", manifest.get("apiVersion"), API_VERSION)
    _as_object_with_fields(manifest, MANIFEST, KIND)
    spec = _as_object(manifest.get("spec"), f"{KIND}.spec")
    _check_namespace(manifest, workload)
    reader = _Reader()
    reader.check_selectors(spec.get("resourceSelectors"), workload)
    placement = _as_object(spec.get("placement", {}), f"{KIND}.spec.placement")
    ours = reader.read_spec(spec, placement)
    try:
        found = policies.read_policy({"apiVersion": policies.API_VERSION, "kind": policies.KIND, "spec": ours})
    except RequestError as error:
        raise error.with_text(reader.translate_error_text(error.text)) from None
    return ReadPolicy(found, tuple(reader.warnings), reader.translate_error_text)


def is_workload_selected(manifest: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    """Returns whether a selector selects the workload, as far as the selectors are readable. Raises RequestError."""
    spec, metadata = manifest.get("spec"), workload.get("metadata") or {}
    selectors = spec.get("resourceSelectors") if isinstance(spec, Mapping) else None
    given = [entry for entry in selectors if isinstance(entry, dict)] if isinstance(selectors, list) else []
    entries = [{field: value for field, value in entry.items() if value is not None} for entry in given]
    where = f"{KIND}.spec.resourceSelectors"
    same_namespace = (manifest.get("metadata") or {}).get("namespace", "") in ("", metadata.get("namespace"))
    return same_namespace and any(_is_selected_by(entry, workload, metadata, where) for entry in entries)


def _as_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid_argument_error(where, value, "an object")
    return value


def _as_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise invalid_argument_error(where, value, "a list")
    return value


def _as_object_with_fields(value: object, fields: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the value as an object. Raises RequestError for a field that is not in `fields`."""
    found = _as_object(value, where)
    for field in found:
        if field not in fields:
            raise invalid_argument_error(f"{where}.{field}", found[field], f"one of {', '.join(fields)}")
    return found


def _check_namespace(manifest: Mapping[str, Any], workload: Mapping[str, Any]) -> None:
    """Raises RequestError if the policy is in another namespace than the workload.

    A policy without a namespace is in that of the workload.
    """
    metadata = _as_object(manifest.get("metadata", {}), f"{KIND}.metadata")
    own = _as_object(workload.get("metadata"), "metadata").get("namespace") or "default"
    if (metadata.get("namespace") or own) != own:
        text = f"{own}, that of the workload which it is applied with"
        raise invalid_argument_error(f"{KIND}.metadata.namespace", metadata["namespace"], text)


def _is_selected_by(
    entry: Mapping[str, Any], workload: Mapping[str, Any], metadata: Mapping[str, Any], where: str
) -> bool:
    if any(entry.get(field) != workload.get(field) for field in ("apiVersion", "kind")):
        return False
    namespace = metadata.get("namespace") or "default"
    if (entry.get("namespace") or namespace) != namespace:
        return False
    if entry.get("name"):
        return bool(entry["name"] == metadata.get("name"))
    labels = convert_manifest_part(entry.get("labelSelector", {}), LabelSelector, f"{where}.labelSelector")
    return matches_labels(selector_of(labels, where).requirements, metadata.get("labels") or {})


class _Reader:
    """Builds the spec of a PlacementPolicy, and collects warnings about fields without effect."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._its_fields = {
            "spec.tiers": "spec.placement.clusterAffinities",
            "spec.strategy.tiers": "spec.placement.clusterAffinities",
            "spec.strategy.spread": "spec.placement.spreadConstraints",
            "spec.strategy.weights": "spec.placement.replicaScheduling.weightPreference.staticWeightList",
        }

    def translate_error_text(self, text: str) -> str:
        """Returns an error text about our policy with the field names of this manifest."""
        path = text.removeprefix(f"{policies.KIND}.")
        for ours in sorted(self._its_fields, key=len, reverse=True):
            if path.startswith(ours):
                return f"{KIND}.{self._its_fields[ours]}{path.removeprefix(ours)}"
        return f"{KIND}, read as a {text}"

    def _note_field_origin(self, ours: str, its: str) -> None:
        """Records that a field of our policy comes from a field of this manifest, for texts of errors."""
        self._its_fields[ours] = its.removeprefix(f"{KIND}.")

    def check_selectors(self, selectors: object, workload: Mapping[str, Any]) -> None:
        """Raises RequestError if no selector selects the workload. Warns about selectors that do not."""
        where = f"{KIND}.spec.resourceSelectors"
        metadata = _as_object(workload.get("metadata"), "metadata")
        others = []
        for index, entry in enumerate(_as_list(selectors, where)):
            if not _is_selected_by(
                _as_object_with_fields(entry, RESOURCE_SELECTOR, f"{where}[{index}]"),
                workload,
                metadata,
                f"{where}[{index}]",
            ):
                others.append(f"spec.resourceSelectors[{index}]")
        if len(others) == len(_as_list(selectors, where)):
            text = f"one that means {workload.get('kind')} {metadata.get('name')}, which it is applied with"
            raise invalid_argument_error(where, selectors, text)
        for field in others:
            self._warn_of_no_effect(
                field, "it does not mean the workload, and a policy is of the one that it is applied with"
            )

    def read_spec(self, spec: Mapping[str, Any], placement: Mapping[str, Any]) -> dict[str, Any]:
        for field in spec:
            if field in SPEC_WITHOUT_EFFECT:
                self._warn_of_no_effect(f"spec.{field}", SPEC_WITHOUT_EFFECT[field])
            elif field == "failover":
                self._warn_about_failover(_as_object(spec[field], f"{KIND}.spec.failover"))
            elif field not in ("resourceSelectors", "placement"):
                self._warn_of_no_effect(f"spec.{field}", "not known here")
        self._check_suspension(spec.get("suspension", {}))
        _as_object_with_fields(placement, PLACEMENT, f"{KIND}.spec.placement")
        tiers, alternatives = self._read_tiers(placement)
        strategy = self._read_strategy(placement, len(tiers) > 1 and alternatives)
        if len(tiers) > 1 and alternatives and strategy["name"] not in WITH_ALTERNATIVES:
            text = "one: Aggregated and dynamic weight alone choose among several"
            raise invalid_argument_error(
                f"{KIND}.spec.placement.clusterAffinities", [tier["name"] for tier in tiers], text
            )
        ours: dict[str, Any] = {"strategy": strategy, "tiers": tiers}
        after = self._read_loss_toleration(placement.get("clusterTolerations", []))
        return ours | ({"onClusterLoss": {"after": after}} if after else {})

    def _warn_of_no_effect(self, field: str, why: str) -> None:
        self.warnings.append(f"{KIND}.{field} has no effect: {why}")

    def _check_suspension(self, suspension: object) -> None:
        """Raises RequestError for a suspension, as the workload would be placed at once although it must not run."""
        for field, value in _as_object(suspension, f"{KIND}.spec.suspension").items():
            if value:
                text = "nothing: what is applied is placed and carried out at once"
                raise invalid_argument_error(f"{KIND}.spec.suspension.{field}", value, text)

    def _warn_about_failover(self, failover: Mapping[str, Any]) -> None:
        for field in failover:
            self._warn_of_no_effect(
                f"spec.failover.{field}",
                "a cluster's loss is spec.placement.clusterTolerations; replicas that do not run are placed elsewhere",
            )

    def _read_tiers(self, placement: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """Returns the tiers, and whether they are alternatives: Karmada uses only one of them, without overflow."""
        where = f"{KIND}.spec.placement"
        if "clusterAffinity" in placement and "clusterAffinities" in placement:
            raise invalid_argument_error(f"{where}.clusterAffinities", "both", "clusterAffinity or clusterAffinities")
        if "clusterAffinities" not in placement:
            affinity = _as_object(placement.get("clusterAffinity", {}), f"{where}.clusterAffinity")
            selector = self._read_selector(affinity, f"{where}.clusterAffinity", "spec.tiers[0].clusters")
            return [{"name": "all", "clusters": selector}], False
        terms = _as_list(placement["clusterAffinities"], f"{where}.clusterAffinities")
        tiers = [
            self._read_tier(term, f"{where}.clusterAffinities[{index}]", index, (*NAMED_AFFINITY, "overflowAffinities"))
            for index, term in enumerate(terms)
        ]
        overflow = [
            (term["overflowAffinities"], f"{where}.clusterAffinities[{index}].overflowAffinities")
            for index, term in enumerate(terms)
            if term.get("overflowAffinities")
        ]
        if overflow and len(terms) > 1:
            raise invalid_argument_error(
                overflow[0][1], "given", "no such field: only one of several clusterAffinities is used"
            )
        for more, at in overflow:
            tiers += [
                self._read_tier(term, f"{at}[{index}]", index + 1, NAMED_AFFINITY)
                for index, term in enumerate(_as_list(more, at))
            ]
        return tiers, not overflow

    def _read_tier(self, term: object, where: str, number: int, fields: Sequence[str]) -> dict[str, Any]:
        affinity = _as_object_with_fields(term, fields, where)
        selected = {field: value for field, value in affinity.items() if field in AFFINITY}
        self._note_field_origin(f"spec.tiers[{number}].name", f"{where}.affinityName")
        selector = self._read_selector(selected, where, f"spec.tiers[{number}].clusters")
        return {"name": affinity.get("affinityName", ""), "clusters": selector}

    def _read_selector(self, affinity: Mapping[str, Any], where: str, made: str) -> dict[str, Any]:
        """Returns our selector for an affinity. made: the field of our policy that it becomes."""
        _as_object_with_fields(affinity, AFFINITY, where)
        for made_field, its in SELECTOR_FIELDS.items():
            self._note_field_origin(f"{made}.{made_field}", f"{where}.{its}")
        ours: dict[str, Any] = {
            "names": affinity.get("clusterNames", []),
            "excluded": affinity.get("exclude", []),
            "labelSelector": affinity.get("labelSelector", {}),
        }
        selected = _as_object_with_fields(
            affinity.get("fieldSelector", {}), ("matchExpressions",), f"{where}.fieldSelector"
        )
        fields = selected.get("matchExpressions", [])
        for index, entry in enumerate(_as_list(fields, f"{where}.fieldSelector.matchExpressions")):
            at = f"{where}.fieldSelector.matchExpressions[{index}]"
            requirement = _as_object_with_fields(entry, ("key", "operator", "values"), at)
            if not isinstance(requirement.get("key"), str) or requirement["key"] not in FIELDS:
                raise invalid_argument_error(f"{at}.key", requirement.get("key"), " or ".join(FIELDS))
            if requirement.get("operator") != "In":
                raise invalid_argument_error(f"{at}.operator", requirement.get("operator"), "In")
            if FIELDS[requirement["key"]] in ours:
                raise invalid_argument_error(f"{at}.key", requirement["key"], "each field once")
            if not requirement.get("values"):
                raise invalid_argument_error(f"{at}.values", requirement.get("values"), "at least one value")
            ours[FIELDS[requirement["key"]]] = requirement["values"]
        return ours

    def _read_strategy(self, placement: Mapping[str, Any], alternatives: bool) -> dict[str, Any]:
        """Returns our strategy for a replicaScheduling, as Karmada would use it. Raises RequestError.

        First it warns about weights without effect, then it refuses unknown types and preferences. Then it chooses:
        Duplicated, Aggregated, dynamic weight, else static weights, which ignore spread constraints.
        """
        where = f"{KIND}.spec.placement.replicaScheduling"
        scheduling = placement.get("replicaScheduling", {"replicaSchedulingType": "Duplicated"})
        scheduling = _as_object_with_fields(scheduling, SCHEDULING, where)
        kind = scheduling.get("replicaSchedulingType", "Divided")
        preference = scheduling.get("replicaDivisionPreference", "Weighted")
        weights = _as_object_with_fields(scheduling.get("weightPreference", {}), WEIGHTS, f"{where}.weightPreference")
        weighted = kind == "Divided" and preference == "Weighted"
        for field in weights if not weighted else WEIGHTS[:1] if weights.get("dynamicWeight") else ():
            if weights.get(field):
                why = "dynamicWeight goes before it" if weighted else "only Divided by Weighted looks at it"
                self._warn_of_no_effect(f"spec.placement.replicaScheduling.weightPreference.{field}", why)
        if kind not in ("Duplicated", "Divided"):
            raise invalid_argument_error(f"{where}.replicaSchedulingType", kind, "Duplicated or Divided")
        if preference not in ("Weighted", "Aggregated"):
            raise invalid_argument_error(f"{where}.replicaDivisionPreference", preference, "Weighted or Aggregated")
        if kind == "Duplicated":
            return self._named_strategy("Duplicated", placement, alternatives)
        if preference == "Aggregated":
            return self._named_strategy("KarmadaAggregated", placement, alternatives)
        dynamic = weights.get("dynamicWeight")
        if dynamic not in (None, "", "AvailableReplicas"):
            raise invalid_argument_error(f"{where}.weightPreference.dynamicWeight", dynamic, "AvailableReplicas")
        if dynamic:
            return self._named_strategy("KarmadaDynamicWeight", placement, alternatives)
        strategy: dict[str, Any] = {"name": "KarmadaStaticWeight"}
        if placement.get("spreadConstraints"):
            self._warn_of_no_effect(
                "spec.placement.spreadConstraints", "static weights do not look at them, there as here"
            )
        rules = list(
            self._read_weights(weights.get("staticWeightList", []), f"{where}.weightPreference.staticWeightList")
        )
        return strategy | ({"weights": rules} if rules else {}) | _tiers_field(alternatives)

    def _named_strategy(self, name: str, placement: Mapping[str, Any], alternatives: bool) -> dict[str, Any]:
        spread = list(self._read_spread(placement.get("spreadConstraints", [])))
        return {"name": name} | ({"spread": spread} if spread else {}) | _tiers_field(alternatives)

    def _read_weights(self, rules: object, where: str) -> Iterator[dict[str, Any]]:
        for index, entry in enumerate(_as_list(rules, where)):
            rule, made = _as_object_with_fields(entry, WEIGHT, f"{where}[{index}]"), f"spec.strategy.weights[{index}]"
            at = f"{where}[{index}].targetCluster"
            self._note_field_origin(made, f"{where}[{index}]")
            clusters = self._read_selector(_as_object(rule.get("targetCluster", {}), at), at, f"{made}.clusters")
            yield {"weight": rule.get("weight"), "clusters": clusters}

    def _read_spread(self, constraints: object) -> Iterator[dict[str, Any]]:
        where = f"{KIND}.spec.placement.spreadConstraints"
        for index, entry in enumerate(_as_list(constraints, where)):
            constraint = _as_object_with_fields(entry, SPREAD, f"{where}[{index}]")
            for ours, its in (("by", "spreadByField"), ("min", "minGroups"), ("max", "maxGroups")):
                self._note_field_origin(f"spec.strategy.spread[{index}].{ours}", f"{where}[{index}].{its}")
            if constraint.get("spreadByLabel"):
                raise invalid_argument_error(
                    f"{where}[{index}].spreadByLabel", constraint["spreadByLabel"], "spreadByField"
                )
            most = {"max": constraint["maxGroups"]} if constraint.get("maxGroups") else {}
            by = constraint.get("spreadByField", "cluster")
            yield {"by": by, "min": constraint.get("minGroups") or 1} | most

    def _read_loss_toleration(self, tolerations: object) -> str:
        """Returns how long a lost cluster is tolerated: the shortest time of its tolerations; empty without one."""
        seconds: list[int] = []
        never = False
        where = f"{KIND}.spec.placement.clusterTolerations"
        for index, entry in enumerate(_as_list(tolerations, where)):
            toleration = _as_object_with_fields(entry, TOLERATION, f"{where}[{index}]")
            borne = toleration.get("tolerationSeconds")
            if borne is not None and (not isinstance(borne, int) or isinstance(borne, bool)):
                raise invalid_argument_error(f"{where}[{index}].tolerationSeconds", borne, "a whole number of seconds")
            if not _tolerates_loss(toleration):
                field = f"spec.placement.clusterTolerations[{index}]"
                self._warn_of_no_effect(
                    field, f"clusters have no taints but their loss: {', '.join(LOST_TAINTS)}, NoExecute"
                )
            elif borne is not None:
                seconds.append(borne)
            else:
                never = True
        if seconds:
            return self._bounded_duration(min(seconds))
        return policies.NEVER if never else ""

    def _bounded_duration(self, seconds: int) -> str:
        bounded = min(max(seconds, policies.LOSS_SECONDS_MIN), policies.LOSS_SECONDS_MAX)
        if bounded != seconds:
            self._warn_of_no_effect(
                "spec.placement.clusterTolerations.tolerationSeconds", f"{seconds} s is taken as {bounded} s"
            )
        if bounded % 60 or bounded < 60:
            return f"{bounded}s"
        return f"{bounded // 60}m"


def _tiers_field(alternatives: bool) -> dict[str, Any]:
    return {"tiers": "Alternatives"} if alternatives else {}


def _tolerates_loss(toleration: Mapping[str, Any]) -> bool:
    """Returns whether the toleration matches a taint of a lost cluster, as in the Kubernetes API.

    Those taints have no value.
    """
    if toleration.get("effect") not in (None, "", "NoExecute"):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", *LOST_TAINTS)
    equal = toleration.get("operator") in (None, "", "Equal") and not toleration.get("value")
    return equal and toleration.get("key") in LOST_TAINTS
