"""Karmada's PropagationPolicy: what of it is done, what is named, what is refused."""

from typing import Any

import pytest

from planner.core.manifests.propagation import read_propagation_policy
from planner.core.manifests.request import read_manifests
from spillway.api import RequestError
from spillway.model import ClusterSelector, ClusterWeight, GroupSpread, Strategy

from .builders import Fleet, deployment, manifest_texts, node_row
from .test_decisions import apply_manifests, placed_by_cluster

WEB = deployment(6)
NOT_READY = "cluster.karmada.io/not-ready"
SELECTS = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]


def propagation_policy(placement: Any = None, selectors: Any = SELECTS, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"resourceSelectors": selectors, "placement": placement or {}} | spec,
    }


def divided_scheduling(preference: str, **weights: Any) -> dict[str, Any]:
    return {
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": preference,
        }
        | ({"weightPreference": weights} if weights else {})
    }


NAMED = {"targetCluster": {"clusterNames": ["a"]}, "weight": 2}
STRATEGIES = {
    "no scheduling": ({}, Strategy("Duplicated")),
    "aggregated": (divided_scheduling("Aggregated"), Strategy("KarmadaAggregated")),
    "by available replicas": (
        divided_scheduling("Weighted", dynamicWeight="AvailableReplicas"),
        Strategy("KarmadaDynamicWeight"),
    ),
    "weighted without weights": (divided_scheduling("Weighted"), Strategy("KarmadaStaticWeight")),
    "static weights": (
        divided_scheduling("Weighted", staticWeightList=[NAMED]),
        Strategy("KarmadaStaticWeight", (ClusterWeight(ClusterSelector(names=("a",)), 2),)),
    ),
    "spread": (
        divided_scheduling("Aggregated")
        | {"spreadConstraints": [{"spreadByField": "region", "minGroups": 2, "maxGroups": 3}, {"maxGroups": 4}]},
        Strategy("KarmadaAggregated", spread=(GroupSpread("region", 2, 3), GroupSpread("cluster", 1, 4))),
    ),
}


AFFINITIES = [{"affinityName": "one", "clusterNames": ["a"]}, {"affinityName": "two", "clusterNames": ["own-9"]}]


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        ({"clusterAffinity": {"clusterNames": ["own-9"]}}, "clusterAffinity.clusterNames: 'own-9': expected a cluster"),
        (
            divided_scheduling("Aggregated") | {"clusterAffinities": AFFINITIES},
            "clusterAffinities[1].clusterNames: 'own-9'",
        ),
        (
            divided_scheduling(
                "Weighted", staticWeightList=[NAMED, NAMED | {"targetCluster": {"clusterNames": ["own-9"]}}]
            ),
            "replicaScheduling.weightPreference.staticWeightList[1].targetCluster.clusterNames: 'own-9'",
        ),
        ({"clusterAffinity": {"labelSelector": {"matchLabels": {"no": "one"}}}}, "clusterAffinities: no cluster of"),
    ],
    ids=["affinity", "affinities", "weights", "nobody"],
)
def test_a_cluster_that_is_not_there_is_said_by_the_fields_that_people_wrote(placement: Any, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        apply_manifests(Fleet(a=[node_row("n")]), WEB, propagation_policy(placement))
    assert refused.value.text.startswith(f"PropagationPolicy.spec.placement.{text}")


@pytest.mark.parametrize(("placement", "expected"), STRATEGIES.values(), ids=STRATEGIES)
def test_scheduling_is_a_strategy(placement: dict[str, Any], expected: Strategy) -> None:
    found = read_propagation_policy(propagation_policy(placement), WEB)
    assert (found.policy.strategy, found.warnings) == (expected, ())


def test_affinities_are_tiers() -> None:
    affinity = {
        "clusterNames": ["a", "b"],
        "exclude": ["b"],
        "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["north"]}]},
    }
    (tier,) = read_propagation_policy(propagation_policy({"clusterAffinity": affinity}), WEB).policy.tiers
    assert tier.clusters == ClusterSelector(names=("a", "b"), excluded=("b",), regions=("north",))


def test_several_affinities_are_alternatives_and_overflow_is_not() -> None:
    near, far = {"affinityName": "near", "clusterNames": ["a"]}, {"affinityName": "far", "clusterNames": ["b"]}
    policy = read_propagation_policy(
        propagation_policy(divided_scheduling("Aggregated") | {"clusterAffinities": [near, far]}), WEB
    ).policy
    assert policy.strategy == Strategy("KarmadaAggregated", alternatives=True)
    overflow = [near | {"overflowAffinities": [far]}]
    policy = read_propagation_policy(
        propagation_policy(divided_scheduling("Aggregated") | {"clusterAffinities": overflow}), WEB
    ).policy
    assert policy.strategy == Strategy("KarmadaAggregated")
    assert [tier.name for tier in policy.tiers] == ["near", "far"]


LOSSES = {
    "as long as is tolerated": ([300, 90], 90, 0),
    "never": ([None], 0, 0),
    "not shorter than can be": ([5], 30, 1),
}


@pytest.mark.parametrize(("given", "expected", "warnings"), LOSSES.values(), ids=LOSSES)
def test_a_tolerated_loss_is_borne_as_long(given: list[int | None], expected: int, warnings: int) -> None:
    tolerations = [
        {"key": "cluster.karmada.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        | ({} if seconds is None else {"tolerationSeconds": seconds})
        for seconds in given
    ]
    found = read_propagation_policy(propagation_policy({"clusterTolerations": tolerations}), WEB)
    assert (found.policy.on_cluster_loss_seconds, len(found.warnings)) == (expected, warnings)


def test_what_has_no_effect_is_named() -> None:
    weight = {"weight": 1, "targetCluster": {"clusterNames": ["a"]}}
    placement = {
        "clusterTolerations": [{"key": "gpu"}, {"key": NOT_READY, "operator": "Equal", "value": "x"}],
    } | divided_scheduling("Weighted", dynamicWeight="AvailableReplicas", staticWeightList=[weight])
    selectors = [*SELECTS, {"apiVersion": "v1", "kind": "Secret", "name": "s"}]
    spec = {"priority": 3, "failover": {"application": {}}, "suspension": {"dispatching": False}, "other": 1}
    found = read_propagation_policy(propagation_policy(placement, selectors, **spec), WEB)
    fields = [text.split(" has no effect: ")[0].removeprefix("PropagationPolicy.spec.") for text in found.warnings]
    assert fields == [
        "resourceSelectors[1]",
        "priority",
        "failover.application",
        "suspension",
        "other",
        "placement.replicaScheduling.weightPreference.staticWeightList",
        "placement.clusterTolerations[0]",
        "placement.clusterTolerations[1]",
    ]


@pytest.mark.parametrize("preference", ["Aggregated", "Duplicated"])
def test_weights_that_nothing_looks_at_are_named(preference: str) -> None:
    placement = divided_scheduling("Aggregated", staticWeightList=[NAMED])
    if preference == "Duplicated":
        placement["replicaScheduling"]["replicaSchedulingType"] = "Duplicated"
    (warning,) = read_propagation_policy(propagation_policy(placement), WEB).warnings
    assert "weightPreference.staticWeightList has no effect: only Divided by Weighted looks at it" in warning


def test_a_toleration_of_everything_is_one_of_a_loss() -> None:
    found = read_propagation_policy(
        propagation_policy({"clusterTolerations": [{"operator": "Exists", "tolerationSeconds": 90}]}), WEB
    )
    assert (found.policy.on_cluster_loss_seconds, found.warnings) == (90, ())


def affinity_by_field(key: str, operator: str) -> dict[str, Any]:
    return {
        "clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": []}]}}
    }


REFUSED = {
    "another workload's": (
        propagation_policy(selectors=[SELECTS[0] | {"name": "db"}]),
        "PropagationPolicy.spec.resourceSelectors: ",
    ),
    "no selectors": (
        propagation_policy(selectors=None),
        "PropagationPolicy.spec.resourceSelectors: None: expected a list",
    ),
    "another version": (
        propagation_policy() | {"apiVersion": "v1"},
        "PropagationPolicy.apiVersion: 'v1': expected policy.",
    ),
    "providers": (
        propagation_policy(affinity_by_field("provider", "In")),
        "matchExpressions[0].key: 'provider': expected",
    ),
    "not in a region": (
        propagation_policy(affinity_by_field("region", "NotIn")),
        "matchExpressions[0].operator: 'NotIn'",
    ),
    "an affinity of a kind not known": (
        propagation_policy({"clusterAffinity": {"nodes": []}}),
        "PropagationPolicy.spec.placement.clusterAffinity.nodes: []: expected one of clusterNames",
    ),
    "spread over zones": (
        propagation_policy({"spreadConstraints": [{"spreadByField": "zone"}]}),
        "PropagationPolicy.spec.placement.spreadConstraints[0].spreadByField: 'zone': expected cluster or region",
    ),
    "fewer groups at the most than at the least": (
        propagation_policy({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]}),
        "PropagationPolicy.spec.placement.spreadConstraints[0].maxGroups: 2: expected at least min (3)",
    ),
    "a bound of groups by a name that is none": (
        propagation_policy({"spreadConstraints": [{"spreadByField": "cluster", "maxGroup": 1}]}),
        "PropagationPolicy.spec.placement.spreadConstraints[0].maxGroup: 1: expected one of",
    ),
    "weights by a name that is none": (
        propagation_policy(divided_scheduling("Weighted", staticWeights=[NAMED])),
        "PropagationPolicy.spec.placement.replicaScheduling.weightPreference.staticWeights: ",
    ),
    "a weight of 0": (
        propagation_policy(divided_scheduling("Weighted", staticWeightList=[NAMED | {"weight": 0}])),
        "PropagationPolicy.spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: 0: expected",
    ),
    "a weight that is no number": (
        propagation_policy(divided_scheduling("Weighted", staticWeightList=[NAMED | {"weight": "2"}])),
        "PropagationPolicy.spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: Expected",
    ),
    "clusters that are no list": (
        propagation_policy({"clusterAffinity": {"clusterNames": "a"}}),
        "PropagationPolicy.spec.placement.clusterAffinity.clusterNames: Expected `array`, got `str`",
    ),
    "a label selector by a comparison": (
        propagation_policy(
            {"clusterAffinity": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": []}]}}}
        ),
        "PropagationPolicy.spec.placement.clusterAffinity.labelSelector.matchExpressions.operator: 'Gt': expected",
    ),
    "an affinity without a name": (
        propagation_policy(divided_scheduling("Aggregated") | {"clusterAffinities": [{"clusterNames": ["a"]}]}),
        "PropagationPolicy.spec.placement.clusterAffinities[0].affinityName: '': expected a name",
    ),
    "several affinities of copies": (
        propagation_policy({"clusterAffinities": [{"affinityName": name, "clusterNames": [name]} for name in "ab"]}),
        "PropagationPolicy.spec.placement.clusterAffinities: ['a', 'b']: expected one: ",
    ),
    "an overflow of the one affinity": (
        propagation_policy(
            {"clusterAffinity": {"clusterNames": ["a"], "overflowAffinities": [{"clusterNames": ["b"]}]}}
        ),
        "PropagationPolicy.spec.placement.clusterAffinity.overflowAffinities: ",
    ),
    "seconds as text": (
        propagation_policy(
            {"clusterTolerations": [{"key": NOT_READY, "operator": "Exists", "tolerationSeconds": "300"}]}
        ),
        "PropagationPolicy.spec.placement.clusterTolerations[0].tolerationSeconds: '300': expected a whole number",
    ),
    "apart from others": (
        propagation_policy({"workloadAffinity": {"antiAffinity": {"groupByLabelKey": "app"}}}),
        "PropagationPolicy.spec.placement.workloadAffinity: ",
    ),
    "what is not to run yet": (
        propagation_policy(suspension={"dispatching": True}),
        "PropagationPolicy.spec.suspension.dispatching: True: expected nothing",
    ),
    "another namespace's": (
        propagation_policy() | {"metadata": {"name": "p", "namespace": "team-b"}},
        "PropagationPolicy.metadata.namespace: 'team-b': expected default, that of the workload",
    ),
    "a selector by a field that is none": (
        propagation_policy(selectors=[SELECTS[0] | {"labelSelectors": {}}]),
        "PropagationPolicy.spec.resourceSelectors[0].labelSelectors: {}: expected one of apiVersion,",
    ),
    "a placement beside spec": (
        propagation_policy() | {"placement": {"clusterAffinity": {"clusterNames": ["a"]}}},
        "PropagationPolicy.placement: {'clusterAffinity': {'clusterNames': ['a']}}: expected one of apiVersion,",
    ),
    "a field without values": (
        propagation_policy(
            {"clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In"}]}}}
        ),
        "clusterAffinity.fieldSelector.matchExpressions[0].values: None: expected at least one value",
    ),
    "spread by label": (
        propagation_policy({"spreadConstraints": [{"spreadByLabel": "rack"}]}),
        "spreadByLabel: 'rack'",
    ),
    "an unknown type": (
        propagation_policy({"replicaScheduling": {"replicaSchedulingType": "Some"}}),
        "replicaSchedulingType: 'Some': expected Duplicated or Divided",
    ),
}


@pytest.mark.parametrize(("manifest", "text"), REFUSED.values(), ids=REFUSED)
def test_what_would_run_elsewhere_is_refused(manifest: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_manifests(manifest_texts(WEB, manifest))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert text in caught.value.text


def test_applied_with_a_workload_it_places_it_and_the_answer_names_the_rest() -> None:
    fleet = Fleet(own_1=[node_row("a1"), node_row("a2")], own_2=[node_row("b1")])
    reply = apply_manifests(
        fleet,
        WEB,
        propagation_policy(divided_scheduling("Weighted", dynamicWeight="AvailableReplicas"), propagateDeps=True),
    )
    assert placed_by_cluster(reply) == {"own-1": 4, "own-2": 2}
    assert reply.warnings == (
        "PropagationPolicy.spec.propagateDeps has no effect: what goes with a workload is applied with it",
    )


def test_what_stands_beside_a_workloads_spec_is_refused_too() -> None:
    with pytest.raises(RequestError, match=r"Deployment\.replicas: unknown field"):
        read_manifests(manifest_texts(WEB | {"replicas": 3}))
