"""Which queues and which Prometheus servers may be asked: those that the operator named, and no others.

A file, YAML, says them by name, and the policies of which namespaces may ask each. What people's objects name (brokers,
a server's address) must be of one of these.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpa.core.series import confined
from spillway.kafka.access import KafkaAccess, KafkaSecurity, Mechanism, Protocol, access_to
from spillway.settings import OperatorError
from spillway.yaml_text import read_yaml

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EVERY: Final = "*"
ADDRESS: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class NoConnection(Exception):
    """The operator named no connection of that address; says what was looked for."""


class KafkaConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a Kafka is reached. Secrets are files, read when it is connected to, so that they can change.

    namespaces: those whose policies may ask it: names, or patterns in which * stands for any text, ? for a character.
    """

    bootstrap_servers: tuple[str, ...]
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism = "PLAIN"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    namespaces: tuple[str, ...] = (EVERY,)

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
    """How a Prometheus is reached. address: without /api/v1; the token's file is read for each question.

    namespaces: as of a Kafka. namespace_label: forced into every query, with the namespace of its policy; empty: none.
    """

    address: str
    bearer_token_file: str = ""
    ca_file: str = ""
    namespaces: tuple[str, ...] = (EVERY,)
    namespace_label: str = ""

    def query_of(self, namespace: str, query: str) -> str:
        """What is asked for a policy of the namespace. Raises QueryRefused."""
        return confined(query, self.namespace_label, namespace) if self.namespace_label else query


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kafka: dict[str, KafkaConnection] = {}
    prometheus: dict[str, PrometheusConnection] = {}


@dataclass(frozen=True, slots=True)
class Connections:
    """By the operator's names."""

    kafka: Mapping[str, KafkaConnection] = field(default_factory=dict)
    prometheus: Mapping[str, PrometheusConnection] = field(default_factory=dict)

    def kafka_of(self, namespace: str, servers: Sequence[str]) -> str:
        """The name of the first connection that has all these brokers, for policies of this namespace. Raises
        NoConnection, which names no connection that they may not use."""
        usable = {name: one for name, one in self.kafka.items() if _may_use(one.namespaces, namespace)}
        for name, connection in usable.items():
            if servers and set(servers) <= set(connection.bootstrap_servers):
                return name
        named = _named(namespace, {name: ",".join(one.bootstrap_servers) for name, one in usable.items()})
        what = f"bootstrapServers {','.join(servers)!r}"
        raise NoConnection(f"{what}: not among the connections that the operator named {named}")

    def prometheus_of(self, namespace: str, address: str) -> str:
        """The name of the first connection of this address, for policies of this namespace. Raises NoConnection."""
        usable = {name: one for name, one in self.prometheus.items() if _may_use(one.namespaces, namespace)}
        for name, connection in usable.items():
            if connection.address.rstrip("/") == address.rstrip("/"):
                return name
        named = _named(namespace, {name: one.address for name, one in usable.items()})
        raise NoConnection(f"serverAddress {address!r}: not among the connections that the operator named {named}")


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
        label = prometheus.namespace_label
        if label and not LABEL.fullmatch(label):
            raise OperatorError(f"connections {path}: prometheus.{name}.namespaceLabel: {label!r}: expected a label")
    for kind, named in (("kafka", found.kafka), ("prometheus", found.prometheus)):
        for name, one in named.items():
            if not one.namespaces or not all(one.namespaces):
                expected = 'expected names or patterns, at least one; "*" for all'
                raise OperatorError(f"connections {path}: {kind}.{name}.namespaces: {expected}")
    return Connections(found.kafka, found.prometheus)


def _may_use(patterns: Sequence[str], namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


def _named(namespace: str, address_by_name: Mapping[str, str]) -> str:
    """With the addresses: a trigger must write them, not the name."""
    named = ", ".join(f"{name} ({address})" for name, address in address_by_name.items())
    return f"for namespace {namespace!r}, {named or 'which are none'}"
