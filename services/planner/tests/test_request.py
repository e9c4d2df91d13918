"""What an Apply's manifests say, and every way in which they can be wrong."""

import json
import sys
from typing import Any

import pytest
import yaml

from planner.core.manifests.policy import DEFAULT_POLICY
from planner.core.manifests.request import Declaration, read_manifests
from planner.core.manifests.templates import KEPT_CHARACTERS_MAX, pods_of_surge
from spillway.api import RequestError
from spillway.kubernetes.manifest_text import read_manifest_once
from spillway.model import SPLIT_PACK, ClusterLimit
from spillway.yaml_text import ValueBudget

from .builders import container_spec, deployment, manifest_texts, placement_policy, pod_template, statefulset

SPEC = "Deployment.spec.template.spec"
CONTAINER = f"{SPEC}.containers[0]"
REPLICAS = "expected an integer, 0 to 100000"


def manifest_without(manifest: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return manifest


def deployment_with_name(name: Any, **metadata: Any) -> dict[str, Any]:
    return deployment() | {"metadata": {"name": name} | metadata}


def deployment_with_requests(**amounts: Any) -> dict[str, Any]:
    return deployment(pod=pod_template({"name": "main", "image": "i", "resources": {"requests": amounts}}))


def deployment_with_affinity(
    operator: str, *values: str, kind: str = "matchExpressions", key: str = "zone"
) -> dict[str, Any]:
    term = {kind: [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return deployment(pod=pod_template(affinity={"nodeAffinity": required}))


def deployment_with_surge(value: Any) -> dict[str, Any]:
    return deployment(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": value}})


def config_map(name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} | metadata, "data": {"a": "b"}}


BAD: dict[str, tuple[tuple[dict[str, Any], ...], str]] = {
    "nothing": ((), "manifests: []: expected one of Deployment, StatefulSet, Job"),
    "no workload": ((placement_policy(),), "manifests: 'none': expected exactly one of Deployment, StatefulSet, Job"),
    "two workloads": ((deployment(), deployment()), "manifests: 'Deployment, Deployment': expected exactly one"),
    "two policies": (
        (deployment(), placement_policy(), placement_policy()),
        "manifests: '2 PlacementPolicy': expected at most one",
    ),
    "65 objects": (tuple(config_map() for _ in range(65)), "manifests: 65: expected at most 64 objects"),
    "DaemonSet": ((deployment() | {"kind": "DaemonSet"},), "kind: 'DaemonSet': expected Deployment, StatefulSet, Job"),
    "unknown kind": (
        (deployment() | {"kind": "Deploy"},),
        "kind: 'Deploy': expected Deployment, StatefulSet, Job, ConfigMap",
    ),
    "a kind that is a list": (
        (deployment() | {"kind": ["Deployment"]},),
        "manifests[0].kind: ['Deployment']: expected",
    ),
    "no kind": ((manifest_without(deployment(), "kind"),), "manifests[0].kind: None: expected"),
    "wrong apiVersion": (
        (deployment() | {"apiVersion": "apps/v1beta1"},),
        "Deployment.apiVersion: 'apps/v1beta1': expected apps/v1",
    ),
    "no metadata": ((manifest_without(deployment(), "metadata"),), "Deployment.metadata: None: expected an object"),
    "no name": ((deployment_with_name(None),), "Deployment.metadata.name: None: expected lower-case"),
    "upper-case name": ((deployment_with_name("Web"),), "Deployment.metadata.name: 'Web': expected lower-case"),
    "name that climbs": ((deployment_with_name("../web"),), "Deployment.metadata.name: '../web': expected"),
    "name with a line end": ((deployment_with_name("web\n"),), "Deployment.metadata.name: 'web\\n': expected"),
    "name of 254": ((deployment_with_name("a" * 254),), "expected lower-case letters, digits and '-', at most 253"),
    "bad namespace": (
        (deployment_with_name("web", namespace="a.b"),),
        "Deployment.metadata.namespace: 'a.b': expected",
    ),
    "no spec": ((manifest_without(deployment(), "spec"),), "Deployment.spec: None: expected an object"),
    "unknown field in the spec": (
        (deployment(replica=3),),
        "Deployment.spec.replica: unknown field; did you mean repl",
    ),
    "unknown field in the pod": (
        (deployment(pod=pod_template(nodeSelectors={})),),
        f"{SPEC}.nodeSelectors: unknown field; did you mean nodeSelector?",
    ),
    "unknown field in a container": (
        (deployment(pod=pod_template(container_spec(ressources={}))),),
        f"{CONTAINER}.ressources: unknown field; did you mean resources?",
    ),
    "unknown field in an init container": (
        (deployment(pod=pod_template(initContainers=[container_spec("i", img="x")])),),
        f"{SPEC}.initContainers[0].img: unknown field",
    ),
    "unknown field in resources": (
        (deployment(pod=pod_template({"name": "m", "image": "i", "resources": {"request": {"cpu": "1"}}})),),
        f"{CONTAINER}.resources.request: unknown field; did you mean requests?",
    ),
    "unknown field in the template": (
        (deployment(pod=pod_template() | {"status": {}}),),
        "Deployment.spec.template.status: unknown field",
    ),
    "unknown field in the strategy": (
        (deployment(strategy={"rolling": {}}),),
        "Deployment.spec.strategy.rolling: unknown field; did you mean rollingUpdate?",
    ),
    "unknown field in the affinity": (
        (deployment(pod=pod_template(affinity={"nodeAfinity": {}})),),
        f"{SPEC}.affinity: Object contains unknown field `nodeAfinity`",
    ),
    "no template": (
        (manifest_without(deployment(), "spec", "template"),),
        "Deployment.spec.template: None: expected a pod temp",
    ),
    "template metadata that is a list": (
        (deployment(pod=pod_template() | {"metadata": ["app"]}, selector={"matchExpressions": [{"key": "app"}]}),),
        "Deployment.spec.template.metadata: ['app']: expected an object",
    ),
    "a label that is a number": (
        (deployment(pod=pod_template(labels={"app": 1}), selector={"matchLabels": {"app": 1}}),),  # type: ignore[dict-item]
        "Expected `str`, got `int`",
    ),
    "no containers": (
        (deployment(pod={"metadata": {"labels": {"app": "web"}}, "spec": {}}),),
        f"{SPEC}.containers: []",
    ),
    "containers that are no list": (
        (deployment(pod=pod_template(containers={"a": 1})),),
        f"{SPEC}.containers: {{'a': 1}}:",
    ),
    "a container that is a text": (
        (deployment(pod=pod_template(containers=["x"])),),
        f"{CONTAINER}: 'x': expected an obj",
    ),
    "no image": ((deployment(pod=pod_template({"name": "m"})),), f"{CONTAINER}.image: None: expected a text"),
    "replicas -1": ((deployment(-1),), f"Deployment.spec.replicas: -1: {REPLICAS}"),
    "replicas 10^9": ((deployment(10**9),), f"Deployment.spec.replicas: 1000000000: {REPLICAS}"),
    "replicas as text": ((deployment("3"),), f"Deployment.spec.replicas: '3': {REPLICAS}"),
    "replicas true": ((deployment(True),), f"Deployment.spec.replicas: True: {REPLICAS}"),
    "replicas 1.5": ((deployment(1.5),), f"Deployment.spec.replicas: 1.5: {REPLICAS}"),
    "replicas NaN": ((deployment(float("nan")),), f"Deployment.spec.replicas: nan: {REPLICAS}"),
    "negative cpu": (
        (deployment_with_requests(cpu="-1"),),
        f"{CONTAINER}.resources.requests.cpu: '-1': expected 0 or more",
    ),
    "negative memory": (
        (deployment_with_requests(memory=-5),),
        f"{CONTAINER}.resources.requests.memory: -5: expected 0 or more",
    ),
    "absurd quantity": (
        (deployment_with_requests(cpu="1e99"),),
        f"{CONTAINER}.resources.requests.cpu: quantity '1e99'",
    ),
    "a quantity that is none": (
        (deployment_with_requests(cpu="one"),),
        f"{CONTAINER}.resources.requests.cpu: quantity 'one': expected",
    ),
    "NaN quantity": (
        (deployment_with_requests(cpu=float("nan")),),
        f"{CONTAINER}.resources.requests.cpu: quantity 'nan': expected",
    ),
    "infinite quantity": (
        (deployment_with_requests(cpu=float("inf")),),
        f"{CONTAINER}.resources.requests.cpu: quantity 'inf'",
    ),
    "quantity true": (
        (deployment_with_requests(cpu=True),),
        f"{CONTAINER}.resources.requests.cpu: Expected `int | float | str`, got `bool`",
    ),
    "quantities whose sum is absurd": (
        (deployment(pod=pod_template(container_spec("a", "9e15"), container_spec("b", "9e15"))),),
        f"{SPEC}: quantity 'cpu'",
    ),
    "negative limit": (
        (deployment(pod=pod_template({"name": "m", "image": "i", "resources": {"limits": {"cpu": "-2"}}})),),
        f"{CONTAINER}.resources.limits.cpu: '-2': expected 0 or more",
    ),
    "negative overhead": (
        (deployment(pod=pod_template(overhead={"cpu": "-4"})),),
        f"{SPEC}.overhead.cpu: '-4': expected 0 or more",
    ),
    "negative request of the pod": (
        (deployment(pod=pod_template(resources={"requests": {"cpu": "-4"}})),),
        f"{SPEC}.resources.requests.cpu: '-4': expected 0 or more",
    ),
    "selector does not match": (
        (deployment(selector={"matchLabels": {"app": "api"}}),),
        "Deployment.spec.selector: {'matchLabels': {'app': 'api'}}: expected labels of the template, {'app': 'web'}",
    ),
    "no selector": ((deployment(selector=None),), "Deployment.spec.selector"),
    "empty selector": ((deployment(selector={}),), "expected at least one label"),
    "selector operator": (
        (deployment(selector={"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]}),),
        "Deployment.spec.selector.matchExpressions.operator: 'Is': expected one of In, NotIn, Exists, DoesNotExist",
    ),
    "selector operator of nodes only": (
        (deployment(selector={"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}),),
        "Deployment.spec.selector.matchExpressions.operator: 'Gt': expected one of",
    ),
    "In without values": (
        (deployment(selector={"matchExpressions": [{"key": "app", "operator": "In"}]}),),
        "Deployment.spec.selector.matchExpressions.values: (): expected at least one value",
    ),
    "Exists with values": (
        (deployment(selector={"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]}),),
        "Deployment.spec.selector.matchExpressions.values: ('x',): expected none with operator Exists",
    ),
    "selector expression that does not match": (
        (deployment(selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["api"]}]}),),
        "expected labels of the template",
    ),
    "affinity operator": (
        (deployment_with_affinity("Within", "a"),),
        ".matchExpressions.operator: 'Within': expected one of In, NotIn",
    ),
    "Gt of a word": (
        (deployment_with_affinity("Gt", "many"),),
        ".matchExpressions.values: ('many',): expected one integer",
    ),
    "a field that no node has": (
        (deployment_with_affinity("In", "a", kind="matchFields", key="spec.x"),),
        "matchFields.key: 'spec.x': expected metadata.name",
    ),
    "toleration operator": (
        (deployment(pod=pod_template(tolerations=[{"key": "a", "operator": "Like"}])),),
        f"{SPEC}.tolerations.operator: 'Like': expected Equal or Exists",
    ),
    "toleration effect": (
        (deployment(pod=pod_template(tolerations=[{"operator": "Exists", "effect": "Never"}])),),
        f"{SPEC}.tolerations.effect: 'Never'",
    ),
    "maxSkew 0": (
        (
            deployment(
                pod=pod_template(
                    topologySpreadConstraints=[
                        {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                    ]
                )
            ),
        ),
        f"{SPEC}.topologySpreadConstraints.maxSkew: 0: expected 1 to 2147483647",
    ),
    "negative maxSurge": (
        (deployment_with_surge(-1),),
        "rollingUpdate.maxSurge: -1: expected 0 or more pods, or a percentage",
    ),
    "maxSurge as a word": ((deployment_with_surge("some"),), "rollingUpdate.maxSurge: 'some': expected 0 or more pods"),
    "negative percentage": ((deployment_with_surge("-5%"),), "rollingUpdate.maxSurge: '-5%': expected 0 or more pods"),
    "maxSurge 0.5": (
        (deployment_with_surge(0.5),),
        "Deployment.spec.strategy.rollingUpdate.maxSurge: Expected `int | str`",
    ),
    "unknown strategy": ((deployment(strategy={"type": "BlueGreen"}),), "Deployment.spec.strategy.type: 'BlueGreen'"),
    "strategy as a text": (
        (deployment(strategy="Recreate"),),
        "Deployment.spec.strategy: Expected `object`, got `str`",
    ),
    "NaN in a manifest": (
        (deployment() | {"metadata": {"name": "web", "annotations": {"a": float("nan")}}},),
        "manifests: cannot be written as JSON",
    ),
    "unknown field in a policy": (
        (deployment(), placement_policy(tier=[])),
        "PlacementPolicy.spec: Object contains unknown field `tier`",
    ),
    "unknown field in a tier": (
        (deployment(), placement_policy(tiers=[{"name": "a", "cluster": {}}])),
        "PlacementPolicy.spec.tiers[0]: Object contains unknown field `cluster`",
    ),
    "unknown field in a policy's selector": (
        (
            deployment(),
            placement_policy(tiers=[{"name": "a", "clusters": {"labelSelector": {"matchLabel": {"a": "b"}}}}]),
        ),
        "PlacementPolicy.spec.tiers[0].clusters.labelSelector: Object contains unknown field `matchLabel`",
    ),
    "policy selector operator": (
        (
            deployment(),
            placement_policy(
                tiers=[
                    {
                        "name": "a",
                        "clusters": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
                    }
                ]
            ),
        ),
        "PlacementPolicy.spec.tiers[0].clusters.labelSelector.matchExpressions.operator: 'Gt': expected one of",
    ),
    "policy apiVersion": (
        (deployment(), placement_policy() | {"apiVersion": "v1"}),
        "PlacementPolicy.apiVersion: 'v1': expected spillway.io/v1",
    ),
    "policy without spec": (
        (deployment(), manifest_without(placement_policy(), "spec")),
        "PlacementPolicy: Object missing required field",
    ),
    "priority beyond its bounds": (
        (deployment(), placement_policy(priority=2_000_000_000)),
        "PlacementPolicy.spec.priority: 2000000000: expected -1000000000 to 1000000000",
    ),
    "unknown split": (
        (deployment(), placement_policy(tiers=[{"name": "a", "split": "Odd"}])),
        "PlacementPolicy.spec.tiers[0].split: 'Odd': expected one of Spread, Pack, Even, MostRemaining, Weighted",
    ),
    "by weights without any": (
        (deployment(), placement_policy(tiers=[{"name": "a", "split": "Weighted"}])),
        "PlacementPolicy.spec.tiers[0].weights: []: expected at least one weight: the split is Weighted",
    ),
    "weights of another split": (
        (deployment(), placement_policy(tiers=[{"name": "a", "weights": [{"weight": 2}]}])),
        "PlacementPolicy.spec.tiers[0].weights: [2]: expected no weights: only the split Weighted has them",
    ),
    "weight of nothing": (
        (deployment(), placement_policy(tiers=[{"name": "a", "split": "Weighted", "weights": [{"weight": 0}]}])),
        "PlacementPolicy.spec.tiers[0].weights[0].weight: 0: expected 1 to 1000000",
    ),
    "more names of clusters than are looked for": (
        (
            deployment(),
            placement_policy(tiers=[{"name": n, "clusters": {"excluded": ["x"] * 1001}} for n in ("a", "b")]),
        ),
        "regions, zones and labels of clusters: 2002: expected at most 2000 in all",
    ),
    "more names of clusters in weights": (
        (
            deployment(),
            placement_policy(
                strategy={
                    "name": "KarmadaStaticWeight",
                    "weights": [{"weight": 1, "clusters": {"regions": ["x"] * 1001}}] * 2,
                }
            ),
        ),
        "regions, zones and labels of clusters: 2002: expected at most 2000 in all",
    ),
    "more weights of all tiers than are looked through": (
        (
            deployment(),
            placement_policy(
                tiers=[{"name": n, "split": "Weighted", "weights": [{"weight": 1}] * 1000} for n in ("a", "b")],
            ),
        ),
        "regions, zones and labels of clusters: 2002: expected at most 2000 in all",
    ),
    "longer names than all clusters have": (
        (deployment(), placement_policy(tiers=[{"name": "a", "clusters": {"excluded": ["x" * 1000] * 132}}])),
        "PlacementPolicy.spec: names and labels: 132001: expected at most 131072 characters in all",
    ),
    "longer labels": (
        (
            deployment(),
            placement_policy(
                limits=[{"cluster": "c" * 100_000}],
                tiers=[{"name": "a", "clusters": {"labelSelector": {"matchLabels": {"x": "y" * 40_000}}}}],
            ),
        ),
        "PlacementPolicy.spec: names and labels: 140002: expected at most 131072 characters in all",
    ),
    "limits beside weights": (
        (
            deployment(),
            placement_policy(
                tiers=[{"name": "a", "split": "Weighted", "weights": [{"weight": 1}] * 1000}],
                limits=[{"cluster": f"c{number}"} for number in range(1000)],
            ),
        ),
        "regions, zones and labels of clusters: 2001: expected at most 2000 in all",
    ),
    "a strategy that is none": (
        (deployment(), placement_policy(strategy={"name": "Karmada"})),
        "PlacementPolicy.spec.strategy.name: 'Karmada': expected one of Duplicated, KarmadaStaticWeight, Karmada",
    ),
    "a strategy has no field like this": (
        (deployment(), placement_policy(strategy={"name": "Duplicated", "kind": "x"})),
        "PlacementPolicy.spec.strategy: Object contains unknown field `kind`",
    ),
    "weights of a strategy that has none": (
        (deployment(), placement_policy(strategy={"name": "KarmadaAggregated", "weights": [{"weight": 1}]})),
        "PlacementPolicy.spec.strategy.weights: '1 entries': expected no such field: only KarmadaStaticWeight",
    ),
    "tiers of a strategy that has none": (
        (deployment(), placement_policy(strategy={"name": "KubeAdmiral"}, tiers=[{"name": "a"}, {"name": "b"}])),
        "PlacementPolicy.spec.tiers: '1 entries': expected no such field: only KarmadaDynamicWeight, KarmadaAggregated",
    ),
    "limits of a strategy that has none": (
        (deployment(), placement_policy(strategy={"name": "Duplicated"}, limits=[{"cluster": "a", "max": 1}])),
        "PlacementPolicy.spec.limits: '1 entries': expected no such field: only KubeAdmiral has it, not Duplicated",
    ),
    "a split beside a strategy": (
        (deployment(), placement_policy(strategy={"name": "Duplicated"}, tiers=[{"name": "a", "split": "Pack"}])),
        "PlacementPolicy.spec.tiers[0].split: 'Pack': expected no split: strategy Duplicated divides the replicas",
    ),
    "node groups beside a strategy": (
        (deployment(), placement_policy(strategy={"name": "Duplicated"}, tiers=[{"name": "a", "nodeGroups": True}])),
        "PlacementPolicy.spec.tiers[0].nodeGroups: True: expected false: strategy Duplicated counts existing nodes",
    ),
    "spread over zones": (
        (deployment(), placement_policy(strategy={"name": "Duplicated", "spread": [{"by": "zone"}]})),
        "PlacementPolicy.spec.strategy.spread[0].by: 'zone': expected cluster or region",
    ),
    "spread of fewer than its least": (
        (
            deployment(),
            placement_policy(strategy={"name": "Duplicated", "spread": [{"by": "cluster", "min": 3, "max": 2}]}),
        ),
        "PlacementPolicy.spec.strategy.spread[0].max: 2: expected at least min (3)",
    ),
    "tiers used in a way that is none": (
        (deployment(), placement_policy(strategy={"name": "KarmadaAggregated", "tiers": "Both"})),
        "PlacementPolicy.spec.strategy.tiers: 'Both': expected Overflow or Alternatives",
    ),
    "tier without a name": (
        (deployment(), placement_policy(tiers=[{"name": ""}])),
        "PlacementPolicy.spec.tiers[0].name: '': expected a name",
    ),
    "two tiers of one name": (
        (deployment(), placement_policy(tiers=[{"name": "a"}, {"name": "a"}])),
        "PlacementPolicy.spec.tiers: ['a', 'a']: expected different names",
    ),
    "a loss borne for no time": (
        (deployment(), placement_policy(onClusterLoss={"after": "29s"})),
        "PlacementPolicy.spec.onClusterLoss.after: '29s': expected never, or a duration like 90s",
    ),
    "a loss borne for ever": (
        (deployment(), placement_policy(onClusterLoss={"after": "169h"})),
        "onClusterLoss.after: '169h'",
    ),
    "a time without its unit": (
        (deployment(), placement_policy(onClusterLoss={"after": "300"})),
        "onClusterLoss.after: '300'",
    ),
    "unknown unplaceable": (
        (deployment(), placement_policy(unplaceable="Drop")),
        "PlacementPolicy.spec.unplaceable: 'Drop'",
    ),
    "max below min": (
        (deployment(), placement_policy(limits=[{"cluster": "a", "min": 3, "max": 2}])),
        "PlacementPolicy.spec.limits[0].max: 2: expected at least min (3)",
    ),
    "negative min": (
        (deployment(), placement_policy(limits=[{"cluster": "a", "min": -1}])),
        "PlacementPolicy.spec.limits[0].min: -",
    ),
    "two limits of one cluster": (
        (deployment(), placement_policy(limits=[{"cluster": "a"}, {"cluster": "a"}])),
        "PlacementPolicy.spec.limits: ['a', 'a']: expected one entry for each cluster",
    ),
    "dependency elsewhere": (
        (deployment(), config_map(namespace="other")),
        "ConfigMap.metadata.namespace: 'other': expected the workload's, default",
    ),
    "dependency apiVersion": (
        (deployment(), config_map() | {"apiVersion": "v2"}),
        "ConfigMap.apiVersion: 'v2': expected v1",
    ),
}


@pytest.mark.parametrize(("manifests", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_field_value_and_expectation(
    manifests: tuple[dict[str, Any], ...], message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read_manifests(manifest_texts(*manifests))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.text


BAD_TEXTS = {
    "10 MB": ("a: " + "x" * 10_485_760, "manifests[0]: 10485763 bytes: expected at most 921600"),
    "neither JSON nor YAML": ("{a: [", "manifests[0]: neither JSON nor YAML"),
    "half a character": ('{"kind": "x\\ud800"}', "manifests[0]: \\ud800: half of a surrogate pair"),
    "half a JSON object": ('{"a": ', "manifests[0]: neither JSON nor YAML"),
    "a text": ("web", "manifests[0]: 'web': expected a Kubernetes object"),
    "empty": ("", "manifests[0]: None: expected a Kubernetes object"),
    "two documents in one text": ("a: 1\n---\nb: 2\n", "manifests[0]: neither JSON nor YAML"),
    "a Python object": ("!!python/object/apply:os.system [true]", "manifests[0]: neither JSON nor YAML"),
    "deep JSON": ('{"a":' * 100_000 + "1" + "}" * 100_000, "manifests[0]: "),
    "deep JSON that Python still reads": ('{"a":' * 700 + "1" + "}" * 700, "manifests[0]: "),
    "deep YAML": ("a: " + "[" * 900 + "]" * 900, "manifests[0]: "),
    "YAML that grows when its aliases are followed": (
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
        "manifests[0]: ",
    ),
    "YAML that contains itself": ("a: &a [*a]", "manifests[0]: "),
}


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_text_that_is_no_manifest_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_manifests((text,))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.text
    assert len(caught.value.text) < 1000


def declaration_of(*manifests: dict[str, Any]) -> Declaration:
    return read_manifests(manifest_texts(*manifests))


def test_defaults_are_the_default_namespace_and_own_first_and_replicas_left_as_they_are() -> None:
    declaration = declaration_of(manifest_without(deployment(), "spec", "replicas"))
    assert (declaration.namespace, declaration.name, declaration.replicas) == ("default", "web", None)
    assert declaration.policy == DEFAULT_POLICY
    assert [tier.name for tier in declaration.policy.tiers] == ["own", "cloud", "node-groups"]
    assert declaration.surge == "25%"


def test_what_was_read_is_kept_unless_it_is_large_or_wrong() -> None:
    small = manifest_texts(deployment(3, "kept"))
    assert read_manifests(list(small)) is read_manifests(small)
    large = (*small, json.dumps(config_map("large") | {"data": {"text": "x" * KEPT_CHARACTERS_MAX}}))
    assert read_manifests(large) == read_manifests(large)
    assert read_manifests(large) is not read_manifests(large)
    for _ in range(2):
        with pytest.raises(RequestError, match="manifests"):
            read_manifests((*small, *small))


@pytest.mark.parametrize("once", [False, True], ids=["as it was asked", "as it was read once"])
@pytest.mark.parametrize("repeated", ["'{}'", "{{? '{}' : x}}"], ids=["a text", "a key"])
def test_what_aliases_make_large_is_read_each_time(repeated: str, once: bool) -> None:
    """4 kB that say 40: what is kept is bounded by what it says, and not by how short it was said."""
    said = repeated.format("x" * 4_000)
    manifest = deployment() | {"status": "SAID"}
    text = yaml.safe_dump(manifest).replace("SAID", f"[&a {said}, {', '.join(['*a'] * 9)}]")
    assert len(text) < KEPT_CHARACTERS_MAX // 2
    asked = (read_manifest_once(text, ValueBudget(1_000)) if once else text,)
    assert read_manifests(asked) == read_manifests((text.replace(", *a" * 9, ""),))
    assert read_manifests(asked) is not read_manifests(asked)


def test_what_was_read_once_is_kept_by_its_text_alone() -> None:
    """Its JSON, which may be many times its text, is not kept with what it says."""
    text = yaml.safe_dump(deployment(3, "kept-by-text"))
    once = read_manifest_once(text, ValueBudget(1_000))
    said = read_manifests((once,))
    assert read_manifests((text,)) is said
    another = read_manifest_once(text, ValueBudget(1_000))
    assert sys.getrefcount(once) == sys.getrefcount(another), "nobody has it but this test"


def test_yaml_says_the_same_as_json() -> None:
    manifest = deployment(3)
    assert read_manifests((yaml.safe_dump(manifest),)) == declaration_of(manifest)


def test_an_anchor_in_yaml_is_followed() -> None:
    manifest = deployment(2)
    manifest["metadata"]["labels"] = manifest["spec"]["selector"]["matchLabels"]
    text = yaml.safe_dump(manifest)
    assert "*id001" in text
    assert read_manifests((text,)).replicas == 2


def test_status_and_what_a_server_filled_in_are_left_out() -> None:
    live = deployment(3) | {"status": {"replicas": 3}}
    live["metadata"] |= {
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "5",
        "generation": 4,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [],
        "selfLink": "/x",
        "labels": {"team": "a"},
        "annotations": {
            "deployment.kubernetes.io/revision": "3",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "note": "kept",
        },
    }
    kept = json.loads(declaration_of(live).manifest)
    assert "status" not in kept
    assert kept["metadata"] == {
        "name": "web",
        "namespace": "default",
        "labels": {"team": "a"},
        "annotations": {"note": "kept"},
    }


def test_finalizers_are_left_out_and_said_of_workload_pods_claims_and_what_goes_along() -> None:
    """Else a workload stays when it is deleted, and its cluster can never be left."""
    kept: Any = {"finalizers": ["example.com/for-ever"]}
    stateful, plain = (
        statefulset(volumeClaimTemplates=[{"metadata": {"name": "data"} | more, "spec": {}}]) for more in (kept, {})
    )
    for metadata in (stateful["metadata"], stateful["spec"]["template"]["metadata"]):
        metadata.update(kept)
    found, expected = declaration_of(stateful, config_map(**kept)), declaration_of(plain, config_map())
    assert (found.manifest, found.template, found.dependencies) == (
        expected.manifest,
        expected.template,
        expected.dependencies,
    )
    fields = [warning.partition(" is left out")[0] for warning in found.warnings]
    assert fields == [
        "StatefulSet.metadata.finalizers",
        "StatefulSet.spec.template.metadata.finalizers",
        "StatefulSet.spec.volumeClaimTemplates.metadata.finalizers",
        "ConfigMap.metadata.finalizers",
    ]
    assert expected.warnings == ()


def test_a_live_object_and_its_manifest_are_the_same_declaration() -> None:
    live = deployment(3) | {"status": {"replicas": 3}}
    live["metadata"] |= {"uid": "u", "resourceVersion": "5", "generation": 4}
    assert declaration_of(live) == declaration_of(deployment(3))


def test_the_order_of_fields_does_not_matter() -> None:
    manifest = deployment(3)
    assert declaration_of(dict(reversed(manifest.items()))) == declaration_of(manifest)


def test_replicas_are_not_part_of_the_template() -> None:
    assert declaration_of(deployment(3)).template == declaration_of(deployment(5)).template


def test_a_policy_is_read_with_its_tiers_and_limits() -> None:
    read = declaration_of(
        deployment(),
        placement_policy(
            tiers=[{"name": "near", "clusters": {"regions": ["eu"]}, "split": "Pack"}, {"name": "far"}],
            limits=[{"cluster": "c", "min": 2}],
            unplaceable="Refuse",
        ),
    ).policy
    assert [(tier.name, tier.split) for tier in read.tiers] == [("near", SPLIT_PACK), ("far", "Spread")]
    assert read.tiers[0].clusters.regions == ("eu",)
    assert (read.limits, read.unplaceable) == ((ClusterLimit("c", 2, -1),), "Refuse")


def test_dependencies_go_along_in_the_workloads_namespace() -> None:
    declaration = declaration_of(deployment() | {"metadata": {"name": "web", "namespace": "shop"}}, config_map())
    (dependency,) = declaration.dependencies
    assert (dependency.kind, dependency.name) == ("ConfigMap", "c")
    assert json.loads(dependency.manifest)["metadata"]["namespace"] == "shop"


SURGES = {
    "a percentage rounds up": ("25%", 10, 3),
    "of none": ("25%", 0, 0),
    "all": ("100%", 7, 7),
    "pods": (4, 10, 4),
}


@pytest.mark.parametrize(("value", "replicas", "expected"), SURGES.values(), ids=SURGES)
def test_surge_is_counted_as_the_deployment_controller_does(value: int | str, replicas: int, expected: int) -> None:
    assert pods_of_surge(value, replicas) == expected


def test_recreate_has_no_surge() -> None:
    assert declaration_of(deployment(strategy={"type": "Recreate"})).surge == 0


LOSSES = {"never": 0, "30s": 30, "90s": 90, "5m": 300, "1h": 3600, "168h": 604_800}


@pytest.mark.parametrize(("after", "seconds"), LOSSES.items(), ids=LOSSES)
def test_how_long_a_policy_bears_the_loss_of_a_cluster(after: str, seconds: int) -> None:
    read = read_manifests(manifest_texts(deployment(), placement_policy(onClusterLoss={"after": after})))
    assert read.policy.on_cluster_loss_seconds == seconds


def test_without_a_word_a_policy_bears_the_loss_of_a_cluster_for_five_minutes() -> None:
    assert read_manifests(manifest_texts(deployment(), placement_policy())).policy.on_cluster_loss_seconds == 300
    assert DEFAULT_POLICY.on_cluster_loss_seconds == 300
