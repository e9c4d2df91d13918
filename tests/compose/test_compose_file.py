"""What compose.yaml says, without an engine: hardened services, variables that exist, versions as everywhere else."""

import re
from typing import Any

import pytest
import yaml

import descheduler.settings
import hpa.settings
import planner.settings
import propagator.settings
import snapshot.settings
import vk_bridge.settings
from hpa.collecting import CollectingSettings
from spillway.kafka.bus import KafkaSettings
from spillway.rpc.services import RpcSettings
from spillway.running.process import ProcessSettings
from spillway.settings import from_environment
from spillway.store import StoreSettings
from spillway_local.compose_setup import GRPC_HOSTS
from spillway_local.fleet_plan import FLEET
from spillway_local.kube_binary import KUBERNETES_VERSION, MODULE_FOLDER
from spillway_local.stack import SERVICES

from .stand_ins import COMPOSE_FILE, KAFKA, KWOK, PYTHON, REDIS, ROOT, SPILLWAY

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
OURS = (*SERVICES, "setup", "join", "spillway")
OWN: dict[str, type] = {
    "snapshot": snapshot.settings.Settings,
    "propagator": propagator.settings.Settings,
    "planner": planner.settings.PlannerSettings,
    "hpa": hpa.settings.HpaSettings,
    "descheduler": descheduler.settings.DeschedulerSettings,
    "vk-bridge": vk_bridge.settings.Settings,
}
SHARED = (
    (CollectingSettings, "SPILLWAY_COLLECTING_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
    (RpcSettings, "SPILLWAY_RPC_"),
    (StoreSettings, "SPILLWAY_REDIS_"),
    (ProcessSettings, "SPILLWAY_"),
)


def test_all_services_and_members_are_there() -> None:
    names = {*OURS, *(member.name for member in FLEET), "kafka", "redis"}
    assert set(COMPOSE["services"]) == names
    assert {entry["image"] for entry in COMPOSE["services"].values()} == {KAFKA, REDIS, KWOK, SPILLWAY}
    assert {name for name in GRPC_HOSTS if name in SERVICES} == {"planner", "hpa", "descheduler"}


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
def test_variables_are_settings_and_can_be_read(name: str) -> None:
    environment = COMPOSE["services"][name]["environment"]
    module = name.replace("-", "_")
    sections = [(OWN[name], f"SPILLWAY_{module.upper()}_"), *SHARED]
    for variable in environment:
        kind, prefix = next((kind, prefix) for kind, prefix in sections if variable.startswith(prefix))
        assert variable.removeprefix(prefix).lower() in kind.__dataclass_fields__, variable
        if kind is not StoreSettings or name == "planner":
            from_environment(kind, environment, prefix, shared=prefix == "SPILLWAY_")
    assert COMPOSE["services"][name]["command"] == ["-m", module]


def test_versions_are_those_of_everything_else() -> None:
    dockerfile = (ROOT / "compose" / "Dockerfile").read_text()
    (uv,) = re.findall(r"^UV_VERSION=(.*)$", (ROOT / "tools" / "ensure-uv").read_text(), re.MULTILINE)
    assert f"uv=={uv}" in dockerfile
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {PYTHON}
    assert f"<version>{KAFKA.partition(':')[2]}</version>" in (ROOT / "local" / "kafka" / "pom.xml").read_text()
    (kwok,) = re.findall(r"sigs.k8s.io/kwok (\S+)", (MODULE_FOLDER / "go.mod").read_text())
    assert KWOK.endswith(f":{kwok}-k8s.{KUBERNETES_VERSION}")
