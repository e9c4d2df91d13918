"""Which parts of tests are containers; that they run is shown by `make test-compose`, where there is an engine."""

from pathlib import Path

import pytest

from spillway_local.containers import (
    AUTO,
    CLUSTER_ID,
    CONTAINERS,
    KAFKA_IMAGE,
    PROCESSES,
    NoContainer,
    kafka_environment,
    wants_container,
)
from spillway_local.kafka_server import KafkaServer
from spillway_local.redis_server import RedisServer


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")


@pytest.mark.parametrize("choice", [AUTO, PROCESSES])
def test_without_an_engine_they_are_processes(choice: str) -> None:
    assert not wants_container(KAFKA_IMAGE, choice)


def test_containers_that_cannot_be_are_an_error_with_the_reason() -> None:
    with pytest.raises(NoContainer, match="SPILLWAY_TEST_PARTS=containers: no Docker engine answers"):
        wants_container(KAFKA_IMAGE, CONTAINERS)


def test_another_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="SPILLWAY_TEST_PARTS='docker': expected auto, containers or processes"):
        wants_container(KAFKA_IMAGE, "docker")


def test_a_broker_in_a_container_has_the_settings_of_the_process(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 23100)
    environment = kafka_environment(server)
    assert environment.pop("CLUSTER_ID") == CLUSTER_ID
    assert environment.pop("KAFKA_LOG_DIRS") == "/var/lib/kafka/data"
    settings = {name: str(value) for name, value in server.settings().items() if name != "log.dirs"}
    assert {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()
    } == settings
    assert environment["KAFKA_LISTENERS"] == "PLAINTEXT://127.0.0.1:23100,CONTROLLER://127.0.0.1:23101"


def test_a_redis_in_a_container_listens_on_loopback_alone(tmp_path: Path) -> None:
    arguments = RedisServer(tmp_path, 23100, keeps_data=False).arguments("/data")
    assert arguments[:6] == ["--port", "23100", "--bind", "127.0.0.1", "--dir", "/data"]
