"""Runs Kafka and Redis as containers for tests, with the settings of the processes, if an engine has their images.

The containers share the machine's network, so they listen on loopback only. No image is pulled, not even
testcontainers' watcher. Therefore a test run that is killed with -9 leaves its containers behind.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from spillway_local.kafka_server import CLUSTER_ID, KafkaServer
from spillway_local.redis_server import RedisServer
from spillway_local.tools import wait_until

KAFKA_IMAGE = "apache/kafka:4.3.1"
REDIS_IMAGE = "redis:7"
CHOICE_VARIABLE = "SPILLWAY_TEST_PARTS"
AUTO, CONTAINERS, PROCESSES = "auto", "containers", "processes"
KAFKA_DATA = "/var/lib/kafka/data"
READY_SECONDS = 60.0
ENGINE_ANSWER_SECONDS = 5


class NoContainer(Exception):
    """Containers were requested and are not possible."""


def wants_container(image: str, choice: str) -> bool:
    """Returns whether to use a container. choice: `containers`, `processes`, or `auto`.

    With `auto` a container is used if an engine answers and has the image. Raises NoContainer with the reason if
    containers were requested and are not possible, and ValueError for another choice.
    """
    if choice not in (AUTO, CONTAINERS, PROCESSES):
        raise ValueError(f"{CHOICE_VARIABLE}={choice!r}: expected {AUTO}, {CONTAINERS} or {PROCESSES}")
    if choice == PROCESSES:
        return False
    reason = _reason_against_container(image)
    if reason and choice == CONTAINERS:
        raise NoContainer(f"{CHOICE_VARIABLE}={choice}: {reason}")
    return not reason


@contextmanager
def kafka_container(server: KafkaServer) -> Iterator[str]:
    """Runs the broker that `server` describes from its image. Yields its bootstrap servers."""
    with _running_container(KAFKA_IMAGE, kafka_environment(server), None, server.is_ready):
        yield server.bootstrap_servers


@contextmanager
def redis_container(server: RedisServer) -> Iterator[str]:
    """Runs the Redis that `server` describes from its image. Yields its URL."""
    with _running_container(REDIS_IMAGE, {}, ["redis-server", *server.arguments("/data")], server.is_ready):
        yield server.url


def kafka_environment(server: KafkaServer) -> dict[str, str]:
    """Returns the broker's settings as its image takes them: a.b as KAFKA_A_B."""
    settings = {**server.settings(), "log.dirs": KAFKA_DATA}
    named = {f"KAFKA_{name.upper().replace('.', '_')}": str(value) for name, value in settings.items()}
    return {"CLUSTER_ID": CLUSTER_ID, **named}


def _reason_against_container(image: str) -> str:
    """Returns why no container of this image is possible; empty if one is."""
    from docker import from_env
    from docker.errors import DockerException, ImageNotFound

    try:
        from_env(timeout=ENGINE_ANSWER_SECONDS).images.get(image)
    except ImageNotFound:
        return f"the engine has no image {image}, and none is pulled"
    except DockerException as error:
        return f"no Docker engine answers: {error}"
    return ""


@contextmanager
def _running_container(
    image: str, environment: Mapping[str, str], command: list[str] | None, is_ready: Callable[[], bool]
) -> Iterator[None]:
    # The library reads this when it is imported. Otherwise it would pull its watcher.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image, env=dict(environment), network_mode="host")
    if command:
        container.with_command(command)
    with container:
        wait_until(is_ready, READY_SECONDS, image)
        yield
