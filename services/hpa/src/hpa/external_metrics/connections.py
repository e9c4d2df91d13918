"""Defines which Kafka and Prometheus connections may be asked: only those that the operator named.

A YAML file names them, with the namespaces whose policies may use each. The brokers or the server address in a user's
manifest must be those of a named connection.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpa.core.series import confine_query
from spillway.kafka.access import KafkaAccess, KafkaSecurity, Mechanism, Protocol, load_kafka_access
from spillway.settings import OperatorError
from spillway.yaml_text import read_yaml

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EVERY: Final = "*"
ADDRESS: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class NoConnection(Exception):
    """Raised when the operator named no connection with that address. The text has the address."""


IN_THE_LOG: Final = "hpa's log has the reason"
NO_CREDENTIALS: Final = f"the connection's credentials cannot be used: {IN_THE_LOG}"


class MetricUnknown(Exception):
    """Raised when a question has no answer. The text gives the reason, for the operator.

    told: the reason for everyone who reads the policy. It names no file, user or broker that only the operator knows.
    Empty: the text itself.
    is_for_operator: whether only the operator may read the text.
    """

    def __init__(self, text: str, told: str = "") -> None:
        super().__init__(text)
        self.told = told or text
        self.is_for_operator = bool(told)


class KafkaConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The connection to a Kafka cluster. Secrets are in files, which are read at each connect, so that they can change.

    namespaces: the namespaces whose policies may use it, as names or patterns. * stands for any text, ? for a
        character.
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

    def read_access(self) -> KafkaAccess:
        """Reads the files. Raises OperatorError with the file that is wrong."""
        security = KafkaSecurity(
            protocol=self.security_protocol,
            mechanism=self.sasl_mechanism,
            username=self.username,
            password_file=self.password_file,
            ca_file=self.ca_file,
            certificate_file=self.cert_file,
            key_file=self.key_file,
        )
        return load_kafka_access(",".join(self.bootstrap_servers), security)


class PrometheusConnection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The connection to a Prometheus server.

    address: the URL of its HTTP API, without /api/v1.
    bearer_token_file: the file with the token, read anew for each question; empty: no token.
    namespaces: as for KafkaConnection.
    namespace_label: the label that every query must have, with the policy's namespace as its value; empty: none.
    """

    address: str
    bearer_token_file: str = ""
    ca_file: str = ""
    namespaces: tuple[str, ...] = (EVERY,)
    namespace_label: str = ""

    def confined_query(self, namespace: str, query: str) -> str:
        """Returns the query to ask for a policy of the namespace. Raises QueryRefused."""
        return confine_query(query, self.namespace_label, namespace) if self.namespace_label else query


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kafka: dict[str, KafkaConnection] = {}
    prometheus: dict[str, PrometheusConnection] = {}


@dataclass(frozen=True, slots=True)
class NamedConnections:
    """The Kafka and Prometheus connections that the operator configured, by name."""

    kafka: Mapping[str, KafkaConnection] = field(default_factory=dict)
    prometheus: Mapping[str, PrometheusConnection] = field(default_factory=dict)

    def kafka_connection_name(self, namespace: str, servers: Sequence[str]) -> str:
        """Returns the name of the first connection with all these brokers, for policies of this namespace.

        Raises NoConnection. Its text lists only connections that policies of this namespace may use.
        """
        usable = {name: one for name, one in self.kafka.items() if _may_use(one.namespaces, namespace)}
        for name, connection in usable.items():
            if servers and set(servers) <= set(connection.bootstrap_servers):
                return name
        named = _allowed_connections_text(
            namespace, {name: ",".join(one.bootstrap_servers) for name, one in usable.items()}
        )
        what = f"bootstrapServers {','.join(servers)!r}"
        raise NoConnection(f"{what}: not among the connections that the operator named {named}")

    def prometheus_connection_name(self, namespace: str, address: str) -> str:
        """Returns the name of the first connection of this address, for policies of this namespace.

        Raises NoConnection.
        """
        usable = {name: one for name, one in self.prometheus.items() if _may_use(one.namespaces, namespace)}
        for name, connection in usable.items():
            if connection.address.rstrip("/") == address.rstrip("/"):
                return name
        named = _allowed_connections_text(namespace, {name: one.address for name, one in usable.items()})
        raise NoConnection(f"serverAddress {address!r}: not among the connections that the operator named {named}")


def read_connections(path: str) -> NamedConnections:
    """Reads the operator's file; an empty path gives no connections. Raises OperatorError, which names the fault."""
    if not path:
        return NamedConnections()
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
    return NamedConnections(found.kafka, found.prometheus)


def _may_use(patterns: Sequence[str], namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


def _allowed_connections_text(namespace: str, address_by_name: Mapping[str, str]) -> str:
    """Returns the allowed connections for an error text, with addresses, because a trigger contains the address."""
    named = ", ".join(f"{name} ({address})" for name, address in address_by_name.items())
    return f"for namespace {namespace!r}, {named or 'which are none'}"
