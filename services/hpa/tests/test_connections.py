"""Which queues and servers the operator named, and whether what people's objects name is among them."""

from pathlib import Path

import pytest

from hpa.external_metrics.connections import NamedConnections, NoConnection, read_connections
from spillway.settings import OperatorError

FILE = """
kafka:
  orders:
    bootstrapServers: [kafka-1:9092, kafka-2:9092]
    securityProtocol: SASL_SSL
    saslMechanism: SCRAM-SHA-512
    username: spillway
    passwordFile: /run/secrets/orders
  other:
    bootstrapServers: [kafka-9:9092]
prometheus:
  main:
    address: http://prometheus:9090/
"""


def read_connections_text(tmp_path: Path, text: str) -> NamedConnections:
    path = tmp_path / "connections.yaml"
    path.write_text(text)
    return read_connections(str(path))


def test_what_is_named_is_found_by_any_of_its_brokers(tmp_path: Path) -> None:
    found = read_connections_text(tmp_path, FILE)
    assert found.kafka["orders"].sasl_mechanism == "SCRAM-SHA-512"
    assert found.kafka_connection_name("shop", ("kafka-1:9092",)) == "orders"
    assert found.kafka_connection_name("shop", ("kafka-2:9092", "kafka-1:9092")) == "orders"
    assert found.kafka_connection_name("shop", ("kafka-9:9092",)) == "other"
    assert found.prometheus_connection_name("shop", "http://prometheus:9090") == "main"


@pytest.mark.parametrize(
    "servers",
    [
        pytest.param(("kafka-3:9092",), id="another"),
        pytest.param(("kafka-1:9092", "kafka-3:9092"), id="one of two"),
        pytest.param(("kafka-1:9092", "kafka-9:9092"), id="of two connections"),
        pytest.param(("kafka-1",), id="without its port"),
        pytest.param((), id="none"),
    ],
)
def test_other_brokers_are_refused_with_what_there_is(tmp_path: Path, servers: tuple[str, ...]) -> None:
    named = r"named for namespace 'shop', orders \(kafka-1:9092,kafka-2:9092\), other \(kafka-9:9092\)$"
    with pytest.raises(NoConnection, match=f"not among the connections that the operator {named}"):
        read_connections_text(tmp_path, FILE).kafka_connection_name("shop", servers)


@pytest.mark.parametrize("address", ["http://prometheus:9091", "https://prometheus:9090", "http://prometheus:9090/x"])
def test_other_addresses_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(NoConnection, match=r"operator named for namespace 'shop', main \(http://prometheus:9090/\)$"):
        read_connections_text(tmp_path, FILE).prometheus_connection_name("shop", address)


CONFINED = """
kafka:
  orders: {bootstrapServers: [kafka-1:9092], namespaces: [shop, "shop-*"]}
prometheus:
  all: {address: "http://prometheus:9090", namespaces: [platform]}
  own: {address: "http://prometheus:9090", namespaces: ["*"], namespaceLabel: namespace}
  toys: {address: "http://toys:9090", namespaces: ["toy?"]}
"""


def test_a_connection_is_of_the_namespaces_that_may_use_it(tmp_path: Path) -> None:
    found = read_connections_text(tmp_path, CONFINED)
    assert [found.kafka_connection_name(namespace, ("kafka-1:9092",)) for namespace in ("shop", "shop-eu")] == [
        "orders",
        "orders",
    ]
    names = {
        one: found.prometheus_connection_name(one, "http://prometheus:9090/") for one in ("platform", "shop", "bank")
    }
    assert names == {"platform": "all", "shop": "own", "bank": "own"}
    for namespace in ("bank", "workshop", "shop2"):
        with pytest.raises(NoConnection, match=f"for namespace '{namespace}', which are none$"):
            found.kafka_connection_name(namespace, ("kafka-1:9092",))
    with pytest.raises(NoConnection, match=r"for namespace 'bank', own \(http://prometheus:9090\)$"):
        found.prometheus_connection_name("bank", "http://toys:9090")


def test_what_is_asked_has_the_label_that_the_connection_forces(tmp_path: Path) -> None:
    found = read_connections_text(tmp_path, CONFINED).prometheus
    assert found["all"].confined_query("platform", "sum(a) # all") == "sum(a) # all"
    assert found["own"].confined_query("shop", "sum(a)") == 'sum(a{namespace="shop"})'


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    for found in (read_connections(""), read_connections_text(tmp_path, "")):
        with pytest.raises(NoConnection, match="which are none"):
            found.kafka_connection_name("shop", ("kafka-1:9092",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("kafka: {Orders: {bootstrapServers: [a:1]}}", "'Orders': expected a name", id="a bad name"),
        pytest.param("kafka: {a: {bootstrapServers: [b:1], namespaces: []}}", r"kafka\.a\.namespaces", id="for nobody"),
        pytest.param(
            "prometheus: {a: {address: 'http://b', namespaces: ['']}}", r"prometheus\.a\.namespaces", id="no namespace"
        ),
        pytest.param(
            "prometheus: {a: {address: 'http://b', namespaceLabel: 'a b'}}", "namespaceLabel: 'a b'", id="no label"
        ),
        pytest.param("kafka: {a: {bootstrapServers: []}}", r"kafka\.a\.bootstrapServers", id="no broker"),
        pytest.param("kafka: {a: {bootstrapServers: [b:1], password: x}}", "password", id="a secret in the file"),
        pytest.param("kafka: {a: {bootstrapServers: [b:1], saslMechanism: X}}", "saslMechanism", id="a mechanism"),
        pytest.param("prometheus: {a: {address: 'prom:9090'}}", r"prometheus\.a\.address", id="no scheme"),
        pytest.param("prometheus: {a: {address: 'http://u:p@prom'}}", r"prometheus\.a\.address", id="a secret in it"),
        pytest.param("zookeeper: {}", "zookeeper", id="unknown kind"),
        pytest.param("kafka: [", "connections", id="not YAML"),
        pytest.param("[]", "connections", id="a list"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        read_connections_text(tmp_path, text)


def test_a_file_that_is_not_there_is_the_operators() -> None:
    with pytest.raises(OperatorError, match="No such file"):
        read_connections("/nowhere/connections.yaml")
