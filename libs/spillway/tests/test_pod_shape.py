"""What one replica asks of a node, read from a pod template."""

from typing import Any

import pytest

from spillway.api import RequestError
from spillway.kubernetes.pod_shape import NO_POD, OWN_TEMPLATE, is_integer, matches_labels, shape_of
from spillway.model import (
    HostPort,
    NodeTerm,
    PodSelector,
    PodTerm,
    PodTraits,
    Requirement,
    Shape,
    Spread,
    Toleration,
)

GI = 2**30
HOSTNAME = "kubernetes.io/hostname"
WEB = PodSelector((Requirement("app", "In", ("web",)),))
DB = PodSelector((Requirement("app", "In", ("db",)),))


def container(name: str = "main", cpu: str = "1", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}} | more


def template(*containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": list(containers) or [container()]} | spec,
    }


def read_shape(*containers: dict[str, Any], **spec: Any) -> Shape:
    return shape_of(template(*containers, **spec), "default", "T")


def bare_container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": resources}


def anti_affinity(app: str, key: str = HOSTNAME, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread_constraints(app: str = "web", key: str = HOSTNAME, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 2,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        | more
    ]


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "one container": (template(container(cpu="250m", memory="1Gi")), {"cpu": 250, "memory": GI}),
    "two add up": (template(container("a", "1"), container("b", "500m")), {"cpu": 1500, "memory": 2 * GI}),
    "the largest init container when it is larger": (
        template(container(cpu="1"), initContainers=[container("i", cpu="3", memory="1Mi")]),
        {"cpu": 3000, "memory": GI},
    ),
    "a sidecar runs beside the containers": (
        template(container(cpu="1"), initContainers=[container("s", cpu="500m") | {"restartPolicy": "Always"}]),
        {"cpu": 1500, "memory": 2 * GI},
    ),
    "an init container after a sidecar runs beside it": (
        template(
            container(cpu="1"),
            initContainers=[container("s", cpu="500m") | {"restartPolicy": "Always"}, container("i", cpu="2")],
        ),
        {"cpu": 2500, "memory": 2 * GI},
    ),
    "an extended resource": (
        template(bare_container(requests={"nvidia.com/gpu": 2}, limits={"nvidia.com/gpu": 2})),
        {"nvidia.com/gpu": 2},
    ),
    "what only has a limit is requested at the limit": (
        template(bare_container(limits={"cpu": "2", "memory": "1Gi"}, requests={"cpu": "1"})),
        {"cpu": 1000, "memory": GI},
    ),
    "a limit of an init container": (
        template(container(cpu="1"), initContainers=[bare_container(limits={"cpu": "3"})]),
        {"cpu": 3000, "memory": GI},
    ),
    "the pod's own request": (template(container(), resources={"requests": {"cpu": "4"}}), {"cpu": 4000, "memory": GI}),
    "the pod's own limit where no container asks": (
        template(bare_container(), resources={"limits": {"cpu": "4"}}),
        {"cpu": 4000},
    ),
    "the pod's own limit where a container asks": (
        template(bare_container(requests={"cpu": "1"}), resources={"limits": {"cpu": "4"}}),
        {"cpu": 1000},
    ),
    "overhead": (template(container(), overhead={"cpu": "250m"}), {"cpu": 1250, "memory": GI}),
    "nothing but a place": (template(bare_container()), {}),
    "zero is nothing": (template(bare_container(requests={"cpu": "0"})), {}),
}


@pytest.mark.parametrize(("pod", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_requests_are_what_the_scheduler_subtracts(pod: dict[str, Any], expected: dict[str, int]) -> None:
    assert dict(shape_of(pod, "default", "T").requests) == expected | {"pods": 1}


def test_requests_are_sorted_so_that_equal_demands_are_equal_values() -> None:
    one = read_shape(bare_container(requests={"cpu": 1, "a/b": 1}))
    assert one == read_shape(bare_container(requests={"a/b": 1, "cpu": 1}))
    assert list(one.requests) == sorted(one.requests)


def test_node_selector_is_sorted() -> None:
    assert read_shape(nodeSelector={"b": "2", "a": "1"}).node_selector == (("a", "1"), ("b", "2"))


def node_affinity_terms(*terms: dict[str, Any], **spec: Any) -> tuple[NodeTerm, ...]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return read_shape(affinity={"nodeAffinity": required}, **spec).node_terms


def test_node_affinity_terms_are_alternatives_of_requirements() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert node_affinity_terms(zone, name) == (
        NodeTerm((Requirement("zone", "In", ("a", "b")),), ()),
        NodeTerm((), (Requirement("metadata.name", "In", ("n1",)),)),
    )


def test_a_term_without_requirements_matches_no_node() -> None:
    (term,) = node_affinity_terms({})
    assert not matches_labels(term.labels, {"": "", "zone": "a"})


def test_a_node_name_is_no_part_of_the_affinity_that_a_spread_honours() -> None:
    given = read_shape(nodeName="n1")
    assert (given.node_name, given.node_terms) == ("n1", ())


def test_preferred_affinity_binds_nothing() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert read_shape(affinity=affinity) == read_shape()


def test_tolerations_default_to_equal() -> None:
    given = read_shape(tolerations=[{"key": "gpu", "value": "yes"}, {"operator": "Exists", "tolerationSeconds": 3}])
    assert given.tolerations == (Toleration("gpu", "Equal", "yes", ""), Toleration("", "Exists", "", ""))


def test_host_ports_of_containers_are_taken() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    assert read_shape(container(ports=ports)).host_ports == (HostPort("0.0.0.0", "TCP", 8080),)


def test_in_the_hosts_network_a_container_port_is_a_host_port() -> None:
    shape = read_shape(container(ports=[{"containerPort": 53, "protocol": "UDP"}]), hostNetwork=True)
    assert shape.host_ports == (HostPort("0.0.0.0", "UDP", 53),)


def test_anti_affinity_to_its_own_replicas_limits_itself() -> None:
    assert read_shape(affinity=anti_affinity("web")).apart == (PodTerm(WEB, own=True),)


def test_anti_affinity_to_others_does_not_limit_itself() -> None:
    assert read_shape(affinity=anti_affinity("db")).apart == (PodTerm(DB),)


def test_a_spread_over_hostnames_is_modelled() -> None:
    assert read_shape(topologySpreadConstraints=spread_constraints()).spread == (Spread(WEB, 2, True, False),)


def test_a_spread_says_which_nodes_count() -> None:
    (given,) = read_shape(
        topologySpreadConstraints=spread_constraints(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor")
    ).spread
    assert (given.honor_affinity, given.honor_taints) == (False, True)


UNMODELLED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "nothing": ({}, ()),
    "anti-affinity by a label of one pod": (
        {"affinity": anti_affinity("web", matchLabelKeys=["job-name"])},
        ("podAntiAffinity by label key job-name",),
    ),
    "spread that is only wished": (
        {"topologySpreadConstraints": spread_constraints(whenUnsatisfiable="ScheduleAnyway")},
        (),
    ),
    "another scheduler": ({"schedulerName": "volcano"}, ("schedulerName volcano",)),
    "resource claims": ({"resourceClaims": [{"name": "gpu"}]}, ("resourceClaims",)),
    "a workload whose pods are scheduled together": (
        {"workloadRef": {"name": "training", "podGroup": "workers"}},
        ("workloadRef: pods of a group are scheduled together or not at all",),
    ),
    "a group of pods": (
        {"schedulingGroup": {"podGroupName": "workers"}},
        ("schedulingGroup: pods of a group are scheduled together or not at all",),
    ),
    "scheduling gates": (
        {"schedulingGates": [{"name": "wait"}]},
        ("schedulingGates: no pod is scheduled until they are removed",),
    ),
    "a claim made for each pod": (
        {"volumes": [{"name": "v", "ephemeral": {}}]},
        ("volume v: on which nodes a claim made for it can be met",),
    ),
    "a volume that is attached": (
        {"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
        ("volume v: to which nodes its csi can be attached",),
    ),
    "a config volume": ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, ()),
}


@pytest.mark.parametrize(("spec", "expected"), UNMODELLED.values(), ids=UNMODELLED)
def test_what_is_not_computed_is_named(spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert read_shape(**spec).unmodelled == expected


def test_the_overhead_of_a_runtime_class_is_named_by_its_class() -> None:
    shape = read_shape(runtimeClassName="kata")
    assert (shape.overhead_of, shape.unmodelled) == ("kata", ())
    assert shape == read_shape(), "it is no part of what a replica asks for"


def test_volume_claims_are_read_by_name() -> None:
    """Each once; what they are bound to is their cluster's to say."""
    names = ("logs", "data", "logs")
    volumes = [{"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}} for index, name in enumerate(names)]
    found = read_shape(volumes=[*volumes, {"name": "c", "configMap": {"name": "c"}}])
    assert (found.volume_claims, found.volume_limits, found.unmodelled) == (("data", "logs"), (), ())
    with pytest.raises(RequestError, match="claimName"):
        read_shape(volumes=[{"name": "v", "persistentVolumeClaim": {}}])


def pod_affinity_term(**term: Any) -> PodTerm:
    entry = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}} | term
    (found,) = read_shape(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [entry]}}).near
    return found


ALL = PodSelector(())
NONE = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
POD_TERMS: dict[str, tuple[dict[str, Any], PodTerm]] = {
    "its own": ({}, PodTerm(WEB, own=True, topology_key="zone")),
    "others": ({"labelSelector": {"matchLabels": {"app": "db"}}}, PodTerm(DB, topology_key="zone")),
    "all pods": ({"labelSelector": {}}, PodTerm(ALL, own=True, topology_key="zone")),
    "no pods": ({"labelSelector": None}, PodTerm(NO_POD, topology_key="zone")),
    "another namespace": ({"namespaces": ["x"]}, PodTerm(WEB, topology_key="zone", namespaces=("x",))),
    "two namespaces": (
        {"namespaces": ["x", "default"]},
        PodTerm(WEB, own=True, topology_key="zone", namespaces=("x", "default")),
    ),
    "every namespace": (
        {"namespaceSelector": {}},
        PodTerm(WEB, own=True, topology_key="zone", namespace_selector=ALL),
    ),
    "the same label": (
        {"labelSelector": {}, "matchLabelKeys": ["app", "unknown"]},
        PodTerm(WEB, own=True, topology_key="zone"),
    ),
    "another label": (
        {"labelSelector": {}, "mismatchLabelKeys": ["app"]},
        PodTerm(PodSelector((Requirement("app", "NotIn", ("web",)),)), topology_key="zone"),
    ),
    "the same template": (
        {"labelSelector": {}, "matchLabelKeys": ["pod-template-hash"]},
        PodTerm(PodSelector((Requirement("pod-template-hash", "In", OWN_TEMPLATE),)), own=True, topology_key="zone"),
    ),
    "others with a label of no value": (
        {"labelSelector": {"matchLabels": {"leader": ""}}},
        PodTerm(PodSelector((Requirement("leader", "In", ("",)),)), topology_key="zone"),
    ),
    "another template": (
        {"labelSelector": {}, "mismatchLabelKeys": ["pod-template-hash"]},
        PodTerm(PodSelector((Requirement("pod-template-hash", "NotIn", OWN_TEMPLATE),)), topology_key="zone"),
    ),
}


@pytest.mark.parametrize(("term", "expected"), POD_TERMS.values(), ids=POD_TERMS)
def test_whom_a_term_of_pod_affinity_means(term: dict[str, Any], expected: PodTerm) -> None:
    assert pod_affinity_term(**term) == expected


REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ELSEWHERE = {"topologyKey": "zone", "namespaces": ["x"]}
TERMS: dict[str, tuple[dict[str, Any], bool]] = {
    "none": ({}, False),
    "of its own namespace": (
        {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "z"}}]}},
        False,
    ),
    "preferred": ({"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": ELSEWHERE}]}}, True),
    "preferred, away": ({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": ELSEWHERE}]}}, True),
    "by a selector that means all": (
        {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "z", "namespaceSelector": {}}}]}},
        True,
    ),
    "away from no pod": ({"podAntiAffinity": {REQUIRED: [ELSEWHERE]}}, True),
}


@pytest.mark.parametrize(("affinity", "expected"), TERMS.values(), ids=TERMS)
def test_a_quota_sees_every_term_that_names_namespaces(affinity: dict[str, Any], expected: bool) -> None:
    """Also those that bar no node: the server's evaluator of quotas looks at preferred ones, too."""
    assert read_shape(affinity=affinity).traits.names_namespaces is expected


@pytest.mark.parametrize(("cpu", "expected"), [("100m", False), ("0", True)])
def test_overhead_makes_no_pod_burstable(cpu: str, expected: bool) -> None:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    assert read_shape(containers=containers, overhead={"cpu": "250m"}).traits.best_effort is expected


def test_anti_affinity_to_no_pod_is_none() -> None:
    terms = [{"topologyKey": "zone"}]
    assert (
        read_shape(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}).apart == ()
    )


SPREADS: dict[str, tuple[dict[str, Any], Spread]] = {
    "over zones": ({"topologyKey": "zone"}, Spread(WEB, 2, topology_key="zone")),
    "at least three": ({"minDomains": 3}, Spread(WEB, 2, min_domains=3)),
    "of others": ({"labelSelector": {"matchLabels": {"app": "db"}}}, Spread(DB, 2, others_only=True)),
    "of all pods counts none": ({"labelSelector": {}}, Spread(ALL, 2)),
    "of no pods counts none": ({"labelSelector": None, "matchLabelKeys": ["app"]}, Spread(ALL, 2)),
    "of all with the same label": ({"labelSelector": {}, "matchLabelKeys": ["app"]}, Spread(WEB, 2)),
}


@pytest.mark.parametrize(("constraint", "expected"), SPREADS.values(), ids=SPREADS)
def test_what_a_spread_counts(constraint: dict[str, Any], expected: Spread) -> None:
    given = [{key: value for key, value in (spread_constraints()[0] | constraint).items() if value is not None}]
    assert read_shape(topologySpreadConstraints=given).spread == (expected,)


LIMITS = container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}})


def test_traits_are_what_others_look_at() -> None:
    given = read_shape(LIMITS, priorityClassName="high", activeDeadlineSeconds=9)
    assert given.traits == PodTraits((("app", "web"),), (("cpu", 2000), ("memory", GI)), "high", True)
    assert given == read_shape(LIMITS)


LABELS = {"zone": "a", "size": "10", "empty": ""}
MATCHES = {
    "In": (Requirement("zone", "In", ("a", "b")), True),
    "In, another": (Requirement("zone", "In", ("b",)), False),
    "In, absent": (Requirement("no", "In", ("",)), False),
    "In, empty": (Requirement("empty", "In", ("",)), True),
    "NotIn": (Requirement("zone", "NotIn", ("a",)), False),
    "NotIn, absent": (Requirement("no", "NotIn", ("a",)), True),
    "Exists": (Requirement("empty", "Exists", ()), True),
    "Exists, absent": (Requirement("no", "Exists", ()), False),
    "DoesNotExist": (Requirement("zone", "DoesNotExist", ()), False),
    "DoesNotExist, absent": (Requirement("no", "DoesNotExist", ()), True),
    "Gt": (Requirement("size", "Gt", ("9",)), True),
    "Gt, equal": (Requirement("size", "Gt", ("10",)), False),
    "Lt": (Requirement("size", "Lt", ("11",)), True),
    "Gt of a word": (Requirement("zone", "Gt", ("9",)), False),
    "Lt, absent": (Requirement("no", "Lt", ("9",)), False),
}


@pytest.mark.parametrize(("requirement", "expected"), MATCHES.values(), ids=MATCHES)
def test_a_requirement_matches_as_in_kubernetes(requirement: Requirement, expected: bool) -> None:
    assert matches_labels((requirement,), LABELS) is expected


def test_a_number_longer_than_any_label_is_no_integer() -> None:
    assert is_integer("0" * 62 + "1")
    assert not is_integer("9" * 5000)
