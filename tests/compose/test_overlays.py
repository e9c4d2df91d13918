"""What is put over compose.yaml, without an engine: three brokers that are one cluster, tools that find each other."""

import re
import subprocess
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.running.process import read_process_settings
from spillway_local.stack import SERVICES

from .engine import find_compose_command
from .stand_ins import COMPOSE_FILE, OBSERVABILITY, ROOT, THREE_BROKERS, image_without_digest

BASE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
THREE: dict[str, Any] = yaml.safe_load(THREE_BROKERS.read_text())
TOOLS: dict[str, Any] = yaml.safe_load(OBSERVABILITY.read_text())
BROKERS = ("kafka", "kafka-2", "kafka-3")
TOOL_NAMES = ("prometheus", "grafana", "collector", "jaeger")
OVERLAYS = (THREE_BROKERS, OBSERVABILITY)


def source_mounted_at(service: dict[str, Any], target: str) -> Path:
    """What of the checkout stands at a place in a container."""
    pairs = [volume.removesuffix(":ro").rsplit(":", 1) for volume in service["volumes"]]
    (source,) = [source for source, place in pairs if place == target]
    return (OBSERVABILITY.parent / source).resolve()


def read_yaml(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def read_with_defaults(value: Any) -> Any:
    """A value of a file, with the default of each variable in it."""
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", yaml.safe_dump(value)))


@pytest.mark.parametrize("over", [chosen for count in (0, 1, 2) for chosen in combinations(OVERLAYS, count)])
def test_compose_takes_each_file_alone_and_together(over: tuple[Path, ...]) -> None:
    """By the command where it is installed, which needs no engine for that."""
    command = find_compose_command()
    if command is None:
        pytest.skip("neither docker-compose nor docker's own compose is installed")
    files = [part for file in (COMPOSE_FILE, *over) for part in ("-f", str(file))]
    checked = subprocess.run((*command, *files, "config"), capture_output=True, check=False, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    services = yaml.safe_load(checked.stdout)["services"]
    assert set(BASE["services"]) - {"spillway"} <= set(services)
    if THREE_BROKERS in over:
        images = {services[name]["image"] for name in BROKERS}
        assert {image.partition("@")[0] for image in images} == {
            image_without_digest(BASE["services"]["kafka"]["image"])
        }
        assert {services[name]["environment"]["KAFKA_NODE_ID"] for name in BROKERS} == {"1", "2", "3"}


# ── Three brokers ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_brokers_are_one_cluster_with_three_copies_of_which_two_must_have_a_write() -> None:
    alike: dict[str, str] = {}
    for number, name in enumerate(BROKERS, start=1):
        environment = BASE["services"]["kafka"]["environment"] | THREE["services"][name]["environment"]
        assert environment.pop("KAFKA_NODE_ID") == str(number)
        assert environment.pop("KAFKA_ADVERTISED_LISTENERS") == f"PLAINTEXT://{name}:9092"
        alike = alike or environment
        assert environment == alike
    voters = [f"{number}@{name}:9093" for number, name in enumerate(BROKERS, start=1)]
    assert alike["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",") == voters
    copies = ("DEFAULT", "OFFSETS_TOPIC", "TRANSACTION_STATE_LOG")
    assert {alike[f"KAFKA_{name}_REPLICATION_FACTOR"] for name in copies} == {"3"}
    assert {alike[f"KAFKA_{name}"] for name in ("MIN_INSYNC_REPLICAS", "TRANSACTION_STATE_LOG_MIN_ISR")} == {"2"}


def test_each_broker_keeps_its_own_and_everybody_knows_all_three() -> None:
    volumes = [(THREE if name in THREE["volumes"] else BASE)["services"][name]["volumes"] for name in BROKERS]
    assert [volume for (volume,) in volumes] == [f"{name}:/var/lib/kafka/data" for name in BROKERS]
    for name in (*SERVICES, "setup"):
        brokers = THREE["services"][name]["environment"]["SPILLWAY_KAFKA_BOOTSTRAP"].split(",")
        assert brokers == [f"{broker}:9092" for broker in BROKERS]
    waits = BASE["services"]["setup"]["depends_on"] | THREE["services"]["setup"]["depends_on"]
    assert all(waits[name] == {"condition": "service_healthy"} for name in BROKERS)


def test_each_broker_comes_back_at_its_own_address_which_no_other_container_gets() -> None:
    """Two brokers that came back at each other's address kept the third from the cluster's state for ever."""
    (pool,) = read_with_defaults(THREE["networks"]["default"]["ipam"]["config"])
    addresses = [
        ip_address(read_with_defaults(THREE["services"][name]["networks"]["default"]["ipv4_address"]))
        for name in BROKERS
    ]
    assert len(set(addresses)) == len(BROKERS)
    assert all(address in ip_network(pool["subnet"]) for address in addresses)
    assert not any(address in ip_network(pool["ip_range"]) for address in addresses)


# ── Observability ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_service_is_scraped_and_every_rule_is_read() -> None:
    service = TOOLS["services"]["prometheus"]
    (file,) = [part.partition("=")[2] for part in service["command"] if part.startswith("--config.file=")]
    config = read_yaml(source_mounted_at(service, file))
    (job,) = config["scrape_configs"]
    assert job["job_name"].startswith("spillway"), "as the rules expect"
    (targets,) = [one["targets"] for one in job["static_configs"]]
    ports = {BASE["services"][name]["environment"]["SPILLWAY_HEALTH_PORT"] for name in SERVICES}
    assert sorted(targets) == sorted(f"{name}:{port}" for name in SERVICES for port in ports)
    (pattern,) = config["rule_files"]
    place, _, names = pattern.rpartition("/")
    assert sorted(path.name for path in source_mounted_at(service, place).glob(names)) == [
        "alert-rules.yaml",
        "slo-rules.yaml",
    ]


def test_spans_go_from_every_service_and_the_command_by_the_collector_to_the_store() -> None:
    collector = TOOLS["services"]["collector"]
    (file,) = [part.partition("=")[2] for part in collector["command"]]
    config = read_yaml(source_mounted_at(collector, file))
    (port,) = [one["endpoint"].rpartition(":")[2] for one in config["receivers"]["otlp"]["protocols"].values()]
    for name in (*SERVICES, "spillway"):
        settings = read_process_settings(TOOLS["services"][name]["environment"])
        assert (settings.otlp_endpoint, settings.trace_ratio) == (f"collector:{port}", 1)
    used = config["service"]["pipelines"]["traces"]
    assert all(set(used[part]) == set(config[part]) for part in ("receivers", "processors", "exporters"))
    host, _, port = config["exporters"]["otlp"]["endpoint"].rpartition(":")
    assert any(f"grpc.endpoint=0.0.0.0:{port}" in part for part in TOOLS["services"][host]["command"])


def test_grafana_is_given_the_dashboards_and_sources_that_are_there() -> None:
    service = TOOLS["services"]["grafana"]
    for source in read_yaml(source_mounted_at(service, "/etc/grafana/provisioning/datasources/spillway.yaml"))[
        "datasources"
    ]:
        host, _, port = source["url"].removeprefix("http://").partition(":")
        assert any(part.endswith(f":{port}") for part in TOOLS["services"][host]["ports"])
    (provider,) = read_yaml(source_mounted_at(service, "/etc/grafana/provisioning/dashboards/spillway.yaml"))[
        "providers"
    ]
    dashboards = source_mounted_at(service, provider["options"]["path"])
    assert dashboards == ROOT / "deploy" / "observability" / "dashboards"
    assert list(dashboards.glob("*.json"))


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_tools_are_of_one_version_may_nothing_and_are_open_to_this_machine_alone(name: str) -> None:
    service = TOOLS["services"][name]
    assert not image_without_digest(service["image"]).endswith(":latest")
    assert ":" in image_without_digest(service["image"])
    assert service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
