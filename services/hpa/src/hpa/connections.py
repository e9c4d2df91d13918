"""Which queues and which Prometheus servers may be asked: those that the operator named, and no others.

A file, YAML, says them by name. What people's objects name (brokers, a server's address) must be of one of these.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from spillway.kafka.access import KafkaAccess, KafkaSecurity, Mechanism, Protocol, access_to
from spillway.settings import OperatorError
from spillway.yaml_text import read_yaml

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class NoConnection(Exception):
    """The operator named no connection of that address; says what was looked for."""


class KafkaConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a Kafka is reached. Secrets are files, read when it is connected to, so that they can change."""

    bootstrap_servers: tuple[str, ...]
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism = "PLAIN"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def access(self) -> KafkaAccess:
        """Reads the files. Raises OperatorError that says which one is wrong."""
        security = KafkaSecurity(
            protocol=self.security_protocol,
            mechanism=self.sasl_mechanism,
            username=self.username,
            password_file=self.password_file,
            ca_file=self.ca_file,
            certificate_file=self.cert_file,
            key_file=self.key_file,
        )
        return access_to(",".join(self.bootstrap_servers), security)


class PrometheusConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a Prometheus is reached. address: without /api/v1; the token's file is read for each question."""

    address: str
    bearer_token_file: str = ""
    ca_file: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kafka: dict[str, KafkaConnection] = {}
    prometheus: dict[str, PrometheusConnection] = {}


@dataclass(frozen=True, slots=True)
class Connections:
    """By the operator's names."""

    kafka: Mapping[str, KafkaConnection] = field(default_factory=dict)
    prometheus: Mapping[str, PrometheusConnection] = field(default_factory=dict)

    def kafka_of(self, servers: Sequence[str]) -> str:
        """The name of a connection that has all these brokers. Raises NoConnection."""
        for name, connection in self.kafka.items():
            if servers and set(servers) <= set(connection.bootstrap_servers):
                return name
        named = _named({name: ",".join(connection.bootstrap_servers) for name, connection in self.kafka.items()})
        what = f"bootstrapServers {','.join(servers)!r}"
        raise NoConnection(f"{what}: not among the connections that the operator named, {named}")

    def prometheus_of(self, address: str) -> str:
        """The name of the connection of this address. Raises NoConnection."""
        for name, connection in self.prometheus.items():
            if connection.address.rstrip("/") == address.rstrip("/"):
                return name
        named = _named({name: connection.address for name, connection in self.prometheus.items()})
        raise NoConnection(f"serverAddress {address!r}: not among the connections that the operator named, {named}")


def read_connections(path: str) -> Connections:
    """The operator's file; an empty path: none. Raises OperatorError that says what is wrong."""
    if not path:
        return Connections()
    try:
        text: Any = read_yaml(Path(path).read_bytes())
        found = msgspec.convert({} if text is None else text, _File)
    except (OSError, ValueError, yaml.YAMLError, RecursionError, msgspec.ValidationError) as error:
        raise OperatorError(f"connections {path}: {error}") from error
    for name in (*found.kafka, *found.prometheus):
        if not NAME.fullmatch(name):
            raise OperatorError(f"connections {path}: {name!r}: expected a name of a-z, 0-9 and dashes")
    for name, kafka in found.kafka.items():
        if not kafka.bootstrap_servers:
            raise OperatorError(f"connections {path}: kafka.{name}.bootstrapServers: expected at least one host:port")
    for name, prometheus in found.prometheus.items():
        if not ADDRESS.fullmatch(prometheus.address):
            raise OperatorError(f"connections {path}: prometheus.{name}.address: expected http://host:port or https")
    return Connections(found.kafka, found.prometheus)


def _named(address_by_name: Mapping[str, str]) -> str:
    """With the addresses: a trigger must write them, not the name."""
    return ", ".join(f"{name} ({address})" for name, address in address_by_name.items()) or "which are none"
