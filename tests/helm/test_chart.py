"""What the chart renders, without helm: hardened pods, variables that exist, Secrets by name, selectors that fit."""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from spillway.kafka.settings import KAFKA_PREFIX, KafkaSettings
from spillway.running.process import ProcessSettings
from spillway.settings import fields_by_variable, settings_from_environment
from spillway.store import StoreSettings
from spillway_local.stack import SERVICES
from tests.compose.test_compose_file import OWN, SHARED
from tests.helm.rendering import CHART, RENDERED, VALUES, first_line

OBJECTS: list[dict[str, Any]] = [one for one in yaml.safe_load_all(RENDERED.read_text()) if one]
WORKLOADS = {
    one["metadata"]["name"].removeprefix("spillway-"): one
    for one in OBJECTS
    if one["kind"] in ("Deployment", "StatefulSet", "Job")
}
ANSWER_RPC = ("planner", "hpa", "descheduler")
CANCEL_SECONDS = 5


def pod_spec_of(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = WORKLOADS[name]["spec"]["template"]["spec"]
    return spec


def objects_of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"].removeprefix("spillway-"): one for one in OBJECTS if one["kind"] == kind}


def test_what_is_rendered_is_of_this_chart() -> None:
    """Else: make helm."""
    assert RENDERED.read_text().startswith(first_line())


def test_all_services_are_there_twice() -> None:
    assert set(WORKLOADS) == {*SERVICES, "topics"}
    assert {name: WORKLOADS[name]["spec"]["replicas"] for name in SERVICES} == dict.fromkeys(SERVICES, 2)
    # Who answers over gRPC is found by a name that its certificate has.
    by_name = {name for name in SERVICES if WORKLOADS[name]["kind"] == "StatefulSet"}
    assert by_name == set(ANSWER_RPC)


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_write_nowhere_and_may_nothing(name: str) -> None:
    """As Pod Security `restricted` asks, and more."""
    spec = pod_spec_of(name)
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", SERVICES)
def test_probes_and_the_time_to_stop(name: str) -> None:
    (container,) = pod_spec_of(name)["containers"]
    probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert pod_spec_of(name)["terminationGracePeriodSeconds"] >= ProcessSettings().stop_seconds + CANCEL_SECONDS


@pytest.mark.parametrize("name", SERVICES)
def test_variables_are_settings_and_can_be_read(name: str) -> None:
    """Kubernetes' own variables of Services would be taken for settings: SPILLWAY_PLANNER_PORT."""
    assert pod_spec_of(name)["enableServiceLinks"] is False
    environment = {
        entry["name"]: str(entry.get("value", "redis://u:p@r/0")) for entry in pod_spec_of(name)["containers"][0]["env"]
    }
    module = name.replace("-", "_")
    sections = [(OWN[name], f"SPILLWAY_{module.upper()}_"), *SHARED]
    for variable in environment:
        kind, prefix = next((kind, prefix) for kind, prefix in sections if variable.startswith(prefix))
        assert variable in fields_by_variable(kind, prefix), variable
        if kind is not StoreSettings or name == "planner":
            settings_from_environment(kind, environment, prefix, shared=prefix == "SPILLWAY_")
    assert importlib.util.find_spec(module)
    assert pod_spec_of(name)["containers"][0]["args"] == ["-m", module]


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_is_known_to_kafka_by_a_name_and_a_password_of_its_own(name: str) -> None:
    """As docs/security.md has it: what does not go together, or lacks a part, KafkaSettings refuses."""
    environment = {entry["name"]: str(entry.get("value", "")) for entry in pod_spec_of(name)["containers"][0]["env"]}
    security = settings_from_environment(KafkaSettings, environment, KAFKA_PREFIX).security
    assert (security.protocol, security.username) == ("SASL_SSL", f"spillway-{name}")
    (secret,) = [volume["secret"]["secretName"] for volume in pod_spec_of(name)["volumes"] if volume["name"] == "kafka"]
    assert secret == ("spillway-kafka" if name == "propagator" else f"spillway-{name}-kafka")


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_variable_is_said_twice_and_a_services_own_has_the_last_word(name: str) -> None:
    variables = [entry["name"] for entry in pod_spec_of(name)["containers"][0]["env"]]
    assert len(variables) == len(set(variables))
    said = {entry["name"]: entry.get("value") for entry in pod_spec_of(name)["containers"][0]["env"]}
    assert said["SPILLWAY_KAFKA_REQUEST_SECONDS"] == ("8" if name == "planner" else "12")


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_mounted_is_there_and_nothing_else(name: str) -> None:
    mounts = [mount["name"] for mount in pod_spec_of(name)["containers"][0]["volumeMounts"]]
    assert sorted(mounts) == sorted(volume["name"] for volume in pod_spec_of(name)["volumes"])
    files = [
        entry["value"] for entry in pod_spec_of(name)["containers"][0]["env"] if str(entry.get("value")).startswith("/")
    ]
    folders = [mount["mountPath"] for mount in pod_spec_of(name)["containers"][0]["volumeMounts"]]
    assert all(any(file == folder or file.startswith(f"{folder}/") for folder in folders) for file in files), files


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_image_is_named_by_its_digest_where_one_is_given(name: str) -> None:
    digest = yaml.safe_load(VALUES.read_text())["image"]["digest"]
    assert pod_spec_of(name)["containers"][0]["image"].endswith(f"@{digest}")


def test_secrets_are_named_and_never_made() -> None:
    assert not objects_of_kind("Secret")
    named = {name: secret_names_of(name) for name in WORKLOADS}
    credentials = {f"spillway-{name}-credentials" for name in ("snapshot", "propagator", "vk-bridge")}
    assert credentials <= set[str]().union(*named.values())
    for name in SERVICES:
        own = named[name] & credentials
        assert own <= {f"spillway-{name}-credentials"}, "no service has another one's credentials"


def secret_names_of(name: str) -> set[str]:
    return {volume["secret"]["secretName"] for volume in pod_spec_of(name)["volumes"] if "secret" in volume}


def test_what_selects_pods_selects_those_of_one_service() -> None:
    labels = {name: WORKLOADS[name]["spec"]["template"]["metadata"]["labels"] for name in WORKLOADS}
    for kind, name, selector in selectors_of_objects():
        found = [one for one, has in labels.items() if selector.items() <= has.items()]
        assert found == [name], f"{kind} {name}"
    assert all(
        set(objects_of_kind(kind)) == set(SERVICES) for kind in ("Service", "PodDisruptionBudget", "ServiceMonitor")
    )
    assert set(objects_of_kind("NetworkPolicy")) == {*SERVICES, "topics"}


def selectors_of_objects() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    paths = {
        "Service": ("spec", "selector"),
        "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
        "NetworkPolicy": ("spec", "podSelector", "matchLabels"),
        "Deployment": ("spec", "selector", "matchLabels"),
        "StatefulSet": ("spec", "selector", "matchLabels"),
    }
    for kind, path in paths.items():
        for name, one in objects_of_kind(kind).items():
            found: Any = one
            for part in path:
                found = found[part]
            yield kind, name, found


def test_each_value_has_a_schema_and_each_schema_a_value() -> None:
    """A value that nobody knows would be passed over in silence."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]
    compare_with_schema(values, schema, "")


def compare_with_schema(values: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> None:
    assert values.keys() == schema["properties"].keys(), path
    assert schema["additionalProperties"] is False, path
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            compare_with_schema(values[name], inner, f"{path}.{name}")
