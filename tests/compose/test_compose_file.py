"""What compose.yaml says, without an engine: hardened services, variables that exist, versions as everywhere else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import descheduler.settings
import hpa.settings
import planner.settings
import propagator.settings
import snapshot.settings
import vk_bridge.settings
from hpa.external_metrics.collecting import CollectingSettings
from spillway.kafka.bus import KafkaSettings
from spillway.rpc.security import RpcSettings
from spillway.running.process import ProcessSettings
from spillway.settings import fields_by_variable, settings_from_environment
from spillway.store import StoreSettings
from spillway_local.compose_setup import COMMAND, REACH_MEMBERS, READ_FROM, RPC_HOSTS, write_files
from spillway_local.fleet_plan import FLEET
from spillway_local.kube_binary import KUBERNETES_VERSION, MODULE_FOLDER
from spillway_local.stack import SERVICES

from .stand_ins import COMPOSE_FILE, KAFKA, KWOK, PYTHON, REDIS, ROOT, SPILLWAY, image_without_digest

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
OURS = (*SERVICES, "setup", "join", "spillway")
OWN: dict[str, type] = {
    "snapshot": snapshot.settings.SnapshotSettings,
    "propagator": propagator.settings.PropagatorSettings,
    "planner": planner.settings.PlannerSettings,
    "hpa": hpa.settings.HpaSettings,
    "descheduler": descheduler.settings.DeschedulerSettings,
    "vk-bridge": vk_bridge.settings.VkBridgeSettings,
}
SHARED = (
    (CollectingSettings, "SPILLWAY_COLLECTING_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
    (RpcSettings, "SPILLWAY_RPC_"),
    (StoreSettings, "SPILLWAY_REDIS_"),
    (ProcessSettings, "SPILLWAY_"),
)


def named_volumes_of(name: str) -> list[str]:
    return [
        source
        for source in (one.split(":")[0] for one in COMPOSE["services"][name]["volumes"])
        if "/" not in source and source != ".."
    ]


def test_all_services_and_members_are_there() -> None:
    names = {*OURS, *(member.name for member in FLEET), "kafka", "redis"}
    assert set(COMPOSE["services"]) == names
    assert {image_without_digest(str(entry["image"])) for entry in COMPOSE["services"].values()} == {
        KAFKA,
        REDIS,
        KWOK,
        SPILLWAY,
    }


@pytest.mark.parametrize("name", OURS)
def test_ours_write_nowhere_and_may_nothing(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    writable = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    assert bool(writable) == (name == "setup")
    assert not any("ports" in one for one in COMPOSE["services"].values())


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_mounts_its_own_folder_alone(name: str) -> None:
    assert COMPOSE["services"][name]["volumes"] == [f"{name}:{READ_FROM}:ro"]
    others = [
        other
        for other in COMPOSE["services"]
        if other not in (name, "setup") and "volumes" in COMPOSE["services"][other]
    ]
    assert not [other for other in others if name in named_volumes_of(other)]


def test_setup_fills_each_folder_and_the_image_has_a_place_for_it() -> None:
    """A place that the image does not have would be root's, and setup is not root."""
    folders = (*SERVICES, COMMAND)
    (made,) = re.findall(r"for name in (.*); do", (ROOT / "compose" / "Dockerfile").read_text())
    assert sorted(made.split()) == sorted(folders)
    assert COMPOSE["services"]["setup"]["volumes"] == [f"{name}:/setup/{name}" for name in made.split()]
    assert {*COMPOSE["volumes"]} == {"kafka", "redis", *folders}


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_is_told_to_read_is_in_its_folder(name: str, tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092")
    told = [value for value in COMPOSE["services"][name]["environment"].values() if value.startswith(f"{READ_FROM}/")]
    assert told
    assert {Path(place).relative_to(READ_FROM).parts[0] for place in told} == {
        file.name for file in (tmp_path / name).iterdir()
    }


def test_the_clusters_and_redis_are_reached_by_those_alone_that_ask_them() -> None:
    """The APIs of kwok's clusters, and this Redis, ask nobody who he is: the network keeps others away."""
    members = {member.name for member in FLEET}
    assert services_in_network("members") == members | {*REACH_MEMBERS, "setup", "spillway"}
    assert services_in_network("copies") == {"redis", "planner", "spillway"}
    assert not services_in_network("default") & (members | {"redis"})
    assert set(RPC_HOSTS).isdisjoint(services_in_network("members"))
    assert {*COMPOSE["networks"]} == {"default", "members", "copies"}


def test_each_listens_at_one_address_that_its_name_means() -> None:
    """In two networks the name of a service means two addresses, and it would listen at either."""
    told = {name: COMPOSE["services"][name]["environment"].get("SPILLWAY_RPC_HOST") for name in SERVICES}
    assert {name: host for name, host in told.items() if host} == RPC_HOSTS
    for name, host in RPC_HOSTS.items():
        networks = COMPOSE["services"][name].get("networks", {})
        aliases = [network for network, entry in networks.items() if host in (entry or {}).get("aliases", ())]
        assert aliases == ["default"] if len(networks) > 1 else host == name


def services_in_network(network: str) -> set[str]:
    return {name for name, entry in COMPOSE["services"].items() if network in entry.get("networks", ["default"])}


@pytest.mark.parametrize("name", SERVICES)
def test_variables_are_settings_and_can_be_read(name: str) -> None:
    environment = COMPOSE["services"][name]["environment"]
    module = name.replace("-", "_")
    sections = [(OWN[name], f"SPILLWAY_{module.upper()}_"), *SHARED]
    for variable in environment:
        kind, prefix = next((kind, prefix) for kind, prefix in sections if variable.startswith(prefix))
        assert variable in fields_by_variable(kind, prefix), variable
        if kind is not StoreSettings or name == "planner":
            settings_from_environment(kind, environment, prefix, shared=prefix == "SPILLWAY_")
    assert COMPOSE["services"][name]["command"] == ["-m", module]


def test_versions_are_those_of_everything_else() -> None:
    dockerfile = (ROOT / "compose" / "Dockerfile").read_text()
    (uv,) = re.findall(r"^UV_VERSION=(.*)$", (ROOT / "tools" / "ensure-uv").read_text(), re.MULTILINE)
    assert f"uv=={uv}" in dockerfile
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {f"{PYTHON}${{PYTHON_DIGEST}}"}
    assert f"<version>{KAFKA.partition(':')[2]}</version>" in (ROOT / "local" / "kafka" / "pom.xml").read_text()
    (kwok,) = re.findall(r"sigs.k8s.io/kwok (\S+)", (MODULE_FOLDER / "go.mod").read_text())
    assert KWOK.endswith(f":{kwok}-k8s.{KUBERNETES_VERSION}")
