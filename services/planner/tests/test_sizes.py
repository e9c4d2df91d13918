"""How much a pod template may hold: each list at its bound, and one above."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.core.manifests.request import read_manifests
from planner.core.manifests.sizes import (
    ANNOTATIONS_MAX,
    CLAIM_TEMPLATES_MAX,
    CONFIG_MAP_KEYS_MAX,
    HEADERS_MAX,
    NAME_LENGTH_MAX,
    OF_ALL_CONTAINERS,
    OF_CONTAINER,
    OF_DNS,
    OF_POD,
    OF_SECURITY,
    REFERENCES_MAX,
    RESOURCES_MAX,
    SERVICE_PORTS_MAX,
    SOURCES_MAX,
    WORDS_MAX,
)
from planner.core.manifests.templates import read_template
from planner.core.manifests.terms import LABELS_MAX
from spillway.api import RequestError
from spillway.kubernetes.label_text import KEY_LENGTH_MAX
from spillway.kubernetes.manifest_text import canonical_json

from .builders import deployment, manifest_texts, statefulset

Manifest = dict[str, Any]
Make = Callable[[int], Manifest]
POD = "Deployment.spec.template.spec"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def deployment_with_pod_spec(**spec: Any) -> Manifest:
    made = deployment(2)
    made["spec"]["template"]["spec"].update(spec)
    return made


def deployment_with_container(**fields: Any) -> Manifest:
    return deployment_with_pod_spec(containers=[{"name": "a", "image": "b"} | fields])


def deployment_with_pod_list(field: str) -> Make:
    entry = {"image": "b"} if field.lower().endswith("containers") else {"emptyDir": {}} if field == "volumes" else {}
    return lambda count: deployment_with_pod_spec(
        **{field: [entry | {"name": f"n{number}"} for number in range(count)]}
    )


def maker_of_container_list(field: str) -> Make:
    return lambda count: deployment_with_container(**{field: [{"name": f"n{number}"} for number in range(count)]})


def maker_in_two_containers(*lists: str) -> Make:
    """Half of them in each, which no bound for one container would notice."""

    def make_manifest(count: int) -> Manifest:
        entries = [{"name": f"n{number}", "containerPort": 80} for number in range(count)]
        first = {"name": "a", "image": "b", lists[0]: entries[: count // 2]}
        return deployment_with_pod_spec(
            containers=[first], initContainers=[{"name": "c", "image": "b", lists[-1]: entries[count // 2 :]}]
        )

    return make_manifest


def manifest_with_command_words(count: int) -> Manifest:
    """A part in each place that there is for a command."""
    places = [[f"w{number}" for number in range(start, count, 7)] for start in range(7)]
    handlers = [{"exec": {"command": place}} for place in places[2:]]
    probes = dict(zip(("livenessProbe", "readinessProbe", "startupProbe"), handlers, strict=False))
    hooks = dict(zip(("postStart", "preStop"), handlers[3:], strict=True))
    return deployment_with_container(command=places[0], args=places[1], lifecycle=hooks, **probes)


def manifest_with_http_headers(count: int) -> Manifest:
    entries = [{"name": "a", "value": "b"}] * count
    probes = {"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": entries[: count // 2]}}}
    return deployment_with_container(
        **probes, lifecycle={"preStop": {"httpGet": {"httpHeaders": entries[count // 2 :]}}}
    )


def manifest_with_annotations(count: int) -> Manifest:
    made = deployment(2)
    made["spec"]["template"]["metadata"]["annotations"] = {f"a{number}": "" for number in range(count)}
    return made


def maker_of_pod_field(part: str, field: str) -> Make:
    return lambda count: deployment_with_pod_spec(**{part: {field: [{"name": "a", "value": "b"}] * count}})


def manifest_with_volume_sources(count: int) -> Manifest:
    half = [{"downwardAPI": {}}] * (count // 2)
    return deployment_with_pod_spec(
        volumes=[
            {"name": "a", "projected": {"sources": half}},
            {"name": "b", "projected": {"sources": [*half, *half[: count % 2]]}},
        ]
    )


def manifest_with_claim_templates(count: int) -> Manifest:
    return statefulset(1, volumeClaimTemplates=[{"metadata": {"name": f"v{number}"}} for number in range(count)])


def manifest_with_labels(count: int) -> Manifest:
    made = deployment(2)
    made["spec"]["template"]["metadata"]["labels"] |= {f"l{number}": "a" for number in range(count - 1)}
    return made


def manifest_with_resources(count: int) -> Manifest:
    """Asked for, limited in and of overhead: each a third."""
    names = {f"example.com/r{number}": 1 for number in range(count)}
    thirds = [dict(list(names.items())[start::3]) for start in range(3)]
    container = {"name": "a", "image": "b", "resources": {"requests": thirds[0], "limits": thirds[1]}}
    return deployment_with_pod_spec(containers=[container], overhead=thirds[2])


def manifest_with_references(count: int) -> Manifest:
    """Of each kind in each of its places, and each twice, which counts once."""
    names = [f"n{number}" for number in range(count - 3)]
    makes: list[tuple[str, Callable[[str], Manifest]]] = [
        ("envFrom", lambda name: {"configMapRef": {"name": name}}),
        ("envFrom", lambda name: {"secretRef": {"name": name}}),
        ("env", lambda name: {"name": name, "valueFrom": {"configMapKeyRef": {"name": name, "key": "a"}}}),
        ("env", lambda name: {"name": name, "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}),
        ("volumes", lambda name: {"name": name, "configMap": {"name": name}}),
        ("volumes", lambda name: {"name": name, "secret": {"secretName": name}}),
        ("volumes", lambda name: {"name": name, "persistentVolumeClaim": {"claimName": name}}),
        ("volumes", lambda name: {"name": name, "projected": {"sources": [{"configMap": {"name": name}}]}}),
        ("volumes", lambda name: {"name": name, "projected": {"sources": [{"secret": {"name": name}}]}}),
    ]
    found: dict[str, list[Manifest]] = {"env": [], "envFrom": [], "volumes": []}
    for number, name in enumerate(names):
        field, make = makes[number % len(makes)]
        found[field] += [make(name), make(name)]
    volumes, classes = found.pop("volumes"), {"priorityClassName": "p", "runtimeClassName": "r"}
    containers = [{"name": "a", "image": "b"} | found]
    return deployment_with_pod_spec(containers=containers, volumes=volumes, serviceAccountName="s", **classes)


ENV, PORTS = OF_ALL_CONTAINERS


@pytest.mark.parametrize(
    ("make", "most", "field"),
    [
        *(
            pytest.param(deployment_with_pod_list(field), most, f"{POD}.{field}", id=field)
            for field, most in OF_POD.items()
        ),
        *(
            pytest.param(maker_of_container_list(field), most, f"{POD}.containers[0].{field}", id=field)
            for field, most in OF_CONTAINER.items()
        ),
        pytest.param(
            maker_in_two_containers(*ENV), OF_ALL_CONTAINERS[ENV], f"{POD}.containers.env and envFrom", id="env"
        ),
        pytest.param(maker_in_two_containers(*PORTS), OF_ALL_CONTAINERS[PORTS], f"{POD}.containers.ports", id="ports"),
        *(
            pytest.param(maker_of_pod_field(part, field), most, f"{POD}.{part}.{field}", id=field)
            for part, bounds in (("dnsConfig", OF_DNS), ("securityContext", OF_SECURITY))
            for field, most in bounds.items()
        ),
        pytest.param(
            manifest_with_command_words, WORDS_MAX, f"{POD}.containers.command and args", id="words of commands"
        ),
        pytest.param(manifest_with_http_headers, HEADERS_MAX, f"{POD}.containers.httpHeaders", id="headers of probes"),
        pytest.param(
            manifest_with_annotations,
            ANNOTATIONS_MAX,
            "Deployment.spec.template.metadata.annotations",
            id="annotations",
        ),
        pytest.param(
            manifest_with_volume_sources, SOURCES_MAX, f"{POD}.volumes.projected.sources", id="projected sources"
        ),
        pytest.param(
            manifest_with_claim_templates, CLAIM_TEMPLATES_MAX, "StatefulSet.spec.volumeClaimTemplates", id="claims"
        ),
        pytest.param(manifest_with_labels, LABELS_MAX, "Deployment.spec.template.metadata.labels", id="labels"),
        pytest.param(manifest_with_resources, RESOURCES_MAX, f"{POD}.containers.resources", id="names of resources"),
        pytest.param(manifest_with_references, REFERENCES_MAX, POD, id="references"),
    ],
)
def test_a_template_holds_as_much_as_its_bound(make: Make, most: int, field: str) -> None:
    read_manifests(manifest_texts(make(most)))
    with pytest.raises(RequestError, match=f"expected at most {most}$") as caught:
        read_manifests(manifest_texts(make(most + 1)))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"{field}: '{most + 1} ")


@pytest.mark.parametrize(
    ("make", "most", "field"),
    [
        pytest.param(
            lambda count: CONFIG_MAP | {"data": {f"k{number}": "" for number in range(count)}},
            CONFIG_MAP_KEYS_MAX,
            "ConfigMap.data",
            id="keys",
        ),
        pytest.param(
            lambda count: CONFIG_MAP | {"binaryData": {f"k{number}": "" for number in range(count)}},
            CONFIG_MAP_KEYS_MAX,
            "ConfigMap.binaryData",
            id="binary keys",
        ),
        pytest.param(
            lambda count: (
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
                | {"spec": {"ports": [{"port": 80}] * count}}
            ),
            SERVICE_PORTS_MAX,
            "Service.spec.ports",
            id="ports",
        ),
    ],
)
def test_what_goes_along_holds_as_much_as_its_bound(make: Make, most: int, field: str) -> None:
    read_manifests(manifest_texts(deployment(2), make(most)))
    with pytest.raises(RequestError, match=f"expected at most {most}$") as caught:
        read_manifests(manifest_texts(deployment(2), make(most + 1)))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"{field}: '{most + 1} ")


ENVIRONMENT = {
    "envFrom a ConfigMap": ("ConfigMap", lambda name: {"envFrom": [{"configMapRef": {"name": name}}]}),
    "envFrom a Secret": ("Secret", lambda name: {"envFrom": [{"secretRef": {"name": name, "optional": True}}]}),
    "a variable": (
        "Secret",
        lambda name: {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}]},
    ),
}
VOLUMES = {
    "a ConfigMap": ("ConfigMap", lambda name: {"configMap": {"name": name}}),
    "a Secret": ("Secret", lambda name: {"secret": {"secretName": name}}),
    "a claim": ("PersistentVolumeClaim", lambda name: {"persistentVolumeClaim": {"claimName": name}}),
    "a source": ("ConfigMap", lambda name: {"projected": {"sources": [{"configMap": {"name": name}}]}}),
}
NAMED_BY_POD = {
    "serviceAccountName": "ServiceAccount",
    "priorityClassName": "PriorityClass",
    "runtimeClassName": "RuntimeClass",
}
NAMING: list[Any] = [
    *(
        pytest.param(kind, lambda name, make=make: deployment_with_container(**make(name)), id=what)
        for what, (kind, make) in ENVIRONMENT.items()
    ),
    *(
        pytest.param(
            kind,
            lambda name, make=make: deployment_with_pod_spec(volumes=[{"name": "v", **make(name)}]),
            id=f"volume of {what}",
        )
        for what, (kind, make) in VOLUMES.items()
    ),
    *(
        pytest.param(kind, lambda name, field=field: deployment_with_pod_spec(**{field: name}), id=field)
        for field, kind in NAMED_BY_POD.items()
    ),
]


@pytest.mark.parametrize(("kind", "make"), NAMING)
@pytest.mark.parametrize("name", ["..", ".", "a/b", "A", "-a", "a_b"])
def test_a_template_names_nothing_by_a_name_that_no_object_can_have(
    kind: str, make: Callable[[str], Manifest], name: str
) -> None:
    """A cluster is asked for each object that a template names: by such a name it would be asked for something else."""
    read_manifests(manifest_texts(make("a.b-1")))
    with pytest.raises(RequestError) as caught:
        read_manifests(manifest_texts(make(name)))
    assert caught.value.code == "INVALID_ARGUMENT"
    text = "expected a valid object name: lower-case letters, digits, '-' and '.'"
    assert caught.value.text == f"{POD}: the name of a {kind}: {name!r}: {text}"


def test_what_is_in_a_log_already_is_read_as_before() -> None:
    """Bounds of requests came after some templates."""
    template = read_template(canonical_json(manifest_with_resources(RESOURCES_MAX + 1)), "default")
    assert len(template.shape.requests) == RESOURCES_MAX + 2, "and its place"


def manifest_with_label_name(length: int) -> Manifest:
    made = deployment(2)
    made["spec"]["template"]["metadata"]["labels"]["k" * length] = "a"
    return made


@pytest.mark.parametrize(
    ("make", "most", "field"),
    [
        pytest.param(manifest_with_label_name, KEY_LENGTH_MAX, "Deployment.spec.template.metadata.labels", id="label"),
        pytest.param(
            lambda length: deployment_with_container(resources={"requests": {"r" * length: 1}}),
            KEY_LENGTH_MAX,
            f"{POD}.containers.resources",
            id="resource",
        ),
        pytest.param(
            lambda length: deployment_with_container(envFrom=[{"secretRef": {"name": "s" * length}}]),
            NAME_LENGTH_MAX,
            f"{POD}: the name of a Secret",
            id="reference",
        ),
        pytest.param(
            lambda length: deployment_with_pod_spec(nodeName="n" * length),
            NAME_LENGTH_MAX,
            f"{POD}.nodeName",
            id="node",
        ),
        pytest.param(
            lambda length: deployment_with_container(
                ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "1" * length}]
            ),
            NAME_LENGTH_MAX,
            f"{POD}.containers.ports.hostIP",
            id="address",
        ),
    ],
)
def test_names_have_a_bound(make: Make, most: int, field: str) -> None:
    read_manifests(manifest_texts(make(most)))
    with pytest.raises(RequestError, match=f"expected at most {most} characters, not {most + 1}$") as caught:
        read_manifests(manifest_texts(make(most + 1)))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"{field}: '")
