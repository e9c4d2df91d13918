"""Kafka and Redis as containers for tests, with the settings that the processes have, where an engine has their images.

They share the machine's network, so they listen on loopback alone. Nothing is pulled, testcontainers' watcher neither:
a test run that is killed with -9 leaves its containers behind.
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
    """Containers were asked for, and cannot be."""


def wants_container(image: str, choice: str) -> bool:
    """choice: `containers`, `processes`, or `auto`: a container where an engine answers and has the image.

    Raises NoContainer with the reason where containers were asked for and cannot be, ValueError for another choice.
    """
    if choice not in (AUTO, CONTAINERS, PROCESSES):
        raise ValueError(f"{CHOICE_VARIABLE}={choice!r}: expected {AUTO}, {CONTAINERS} or {PROCESSES}")
    if choice == PROCESSES:
        return False
    reason = _why_not(image)
    if reason and choice == CONTAINERS:
        raise NoContainer(f"{CHOICE_VARIABLE}={choice}: {reason}")
    return not reason


@contextmanager
def kafka_container(server: KafkaServer) -> Iterator[str]:
    """The broker that server describes, from its image; yields where clients begin."""
    with _running(KAFKA_IMAGE, kafka_environment(server), None, server.is_ready):
        yield server.bootstrap


@contextmanager
def redis_container(server: RedisServer) -> Iterator[str]:
    """The server that server describes, from its image; yields its URL."""
    with _running(REDIS_IMAGE, {}, ["redis-server", *server.arguments("/data")], server.is_ready):
        yield server.url


def kafka_environment(server: KafkaServer) -> dict[str, str]:
    """The broker's settings as its image takes them: a.b as KAFKA_A_B."""
    settings = {**server.settings(), "log.dirs": KAFKA_DATA}
    named = {f"KAFKA_{name.upper().replace('.', '_')}": str(value) for name, value in settings.items()}
    return {"CLUSTER_ID": CLUSTER_ID, **named}


def _why_not(image: str) -> str:
    """Why there can be no container of it, or nothing."""
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
def _running(
    image: str, environment: Mapping[str, str], command: list[str] | None, is_ready: Callable[[], bool]
) -> Iterator[None]:
    # It is read when the library is imported; its watcher would be pulled.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image, env=dict(environment), network_mode="host")
    if command:
        container.with_command(command)
    with container:
        wait_until(is_ready, READY_SECONDS, image)
        yield
