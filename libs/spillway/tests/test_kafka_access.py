"""How clients prove to Kafka who they are: what is set and read, what is refused, and that nothing tells a secret."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from cryptography.hazmat.primitives import serialization

from spillway.kafka.access import KafkaAccess, KafkaSecurity, LetNotIn, LogClosed, NotAllowed, load_kafka_access
from spillway.kafka.bus import KafkaBus
from spillway.kafka.settings import KAFKA_PREFIX, KafkaSettings
from spillway.settings import OperatorError, SettingsError, settings_from_environment
from spillway_local.kafka_security import Authority

PASSWORD = "a-word-that-passes"
SCRAM = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "planner", "SASL_PASSWORD_FILE": "/run/kafka/password"}


def read_settings(**variables: str) -> KafkaSettings:
    environ = {KAFKA_PREFIX + name: value for name, value in {"BOOTSTRAP": "kafka:9093", **variables}.items()}
    return settings_from_environment(KafkaSettings, environ, KAFKA_PREFIX)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


# ── Settings ──


def test_without_any_of_it_nothing_is_encrypted_and_nobody_asks_who_we_are() -> None:
    settings = read_settings()
    assert settings.security == KafkaSecurity()
    assert load_kafka_access(settings.bootstrap, settings.security).proof == {"security_protocol": "PLAINTEXT"}


def test_names_are_kafkas() -> None:
    settings = read_settings(**SCRAM, SSL_CA_FILE="/ca", SSL_CERTIFICATE_FILE="/crt", SSL_KEY_FILE="/key")
    assert settings.security == KafkaSecurity(
        "SASL_SSL", "SCRAM-SHA-512", "planner", "/run/kafka/password", "/ca", "/crt", "/key"
    )


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        pytest.param(
            {"SECURITY_PROTOCOL": "TLS"},
            "SPILLWAY_KAFKA_SECURITY_PROTOCOL: 'TLS': expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            id="a protocol",
        ),
        pytest.param(
            {**SCRAM, "SASL_MECHANISM": "GSSAPI"},
            "expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
            id="a mechanism",
        ),
        pytest.param(
            {"SECURITY_PROTOCOL": "SASL_SSL"},
            "sasl_username: empty: expected one, since security_protocol is SASL_SSL",
            id="nobody",
        ),
        pytest.param(
            {**SCRAM, "SASL_PASSWORD_FILE": ""}, "sasl_password_file: empty: expected one", id="without a password"
        ),
        pytest.param(
            {**SCRAM, "SECURITY_PROTOCOL": "PLAINTEXT"},
            "sasl_username: set: expected security_protocol SASL_SSL, which is PLAINTEXT",
            id="a user who would never be named",
        ),
        pytest.param(
            {"SSL_CA_FILE": "/ca"},
            "ssl_ca_file: set: expected security_protocol SSL or SASL_SSL, which is PLAINTEXT",
            id="a CA that would check nothing",
        ),
        pytest.param(
            {"SECURITY_PROTOCOL": "SSL", "SSL_KEY_FILE": "/key"}, "expected both or neither", id="half a certificate"
        ),
        pytest.param(
            {**SCRAM, "SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_MECHANISM": "PLAIN"},
            "would show the password",
            id="a password in the clear",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(variables: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(**variables)
    assert why in str(refused.value)


def test_a_password_in_place_of_its_file_is_not_shown() -> None:
    with pytest.raises(SettingsError, match="did you mean SPILLWAY_KAFKA_SASL_PASSWORD_FILE") as refused:
        read_settings(**SCRAM, SASL_PASSWORD=PASSWORD)
    assert PASSWORD not in str(refused.value)
    with pytest.raises(OperatorError, match="hidden") as missing:
        load_kafka_access("kafka:9093", read_settings(**{**SCRAM, "SASL_PASSWORD_FILE": PASSWORD}).security)
    assert PASSWORD not in str(missing.value)


# ── Files ──


def test_the_password_is_the_line_and_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    access = load_kafka_access("kafka:9093", read_settings(**{**SCRAM, "SASL_PASSWORD_FILE": str(file)}).security)
    assert access.proof["sasl_plain_password"] == PASSWORD
    assert PASSWORD not in repr(access) + caplog.text


def test_certificates_are_checked_and_shown(authority: Authority) -> None:
    certificate, key = authority.issue_certificate("planner")
    security = KafkaSecurity(
        "SSL", ca_file=str(authority.certificate), certificate_file=str(certificate), key_file=str(key)
    )
    context = load_kafka_access("kafka:9093", security).proof["ssl_context"]
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_files_that_are_wrong_are_named(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue_certificate("planner")
    _, other_key = authority.issue_certificate("other")
    words, empty, locked = tmp_path / "words", tmp_path / "empty", tmp_path / "locked"
    words.write_text("no certificate\n")
    empty.write_text("\n")
    encryption = serialization.BestAvailableEncryption(b"phrase")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    ca = str(authority.certificate)
    for security, why in (
        (KafkaSecurity("SASL_PLAINTEXT", password_file="/nowhere/word"), "password file '/nowhere/word': No such file"),
        (KafkaSecurity("SASL_PLAINTEXT", password_file=str(empty)), f"password file '{empty}': empty"),
        (KafkaSecurity("SSL", ca_file="/nowhere/ca"), "CA file '/nowhere/ca': No such file"),
        (KafkaSecurity("SSL", ca_file=str(words)), f"CA file '{words}': no certificate"),
        (KafkaSecurity("SSL", "PLAIN", "", "", ca, str(certificate), str(words)), "expected a certificate and its key"),
        (KafkaSecurity("SSL", "PLAIN", "", "", ca, str(certificate), str(other_key)), "key values mismatch"),
        (KafkaSecurity("SSL", "PLAIN", "", "", ca, str(certificate), str(locked)), "without a pass phrase"),
    ):
        with pytest.raises(OperatorError) as wrong:
            load_kafka_access("kafka:9093", security)
        assert why in str(wrong.value)


# ── What brokers say ──


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param(TopicAuthorizationFailedError("load"), "user 'x' may not write topic load", id="a topic"),
        pytest.param(TopicAuthorizationFailedError({"b", "a"}), "may not write topic a, b", id="several topics"),
        pytest.param(TransactionalIdAuthorizationFailed("f.hpa"), "transactional id f.hpa", id="another's writer"),
        pytest.param(ClusterAuthorizationFailedError(), "may not write any topic", id="nothing at all"),
    ],
)
def test_a_right_that_is_missing_is_named(error: KafkaError, why: str) -> None:
    """Also where aiokafka puts what a broker said behind an error of its own."""
    wrapped = KafkaError("Unexpected error during batch delivery")
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        with pytest.raises(NotAllowed) as missing:
            KafkaAccess("kafka:9093", "user 'x'").check_allowed(raised, "write")
        assert why in str(missing.value)


def test_any_other_error_says_nothing_of_rights() -> None:
    KafkaAccess("kafka:9093").check_allowed(KafkaError("x"), "write")


@asynccontextmanager
async def broker_that_hangs_up() -> AsyncIterator[str]:
    """As a broker does at a first word that is not of its protocol."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_port_that_speaks_something_else_is_asked_about(protocol: str) -> None:
    async with broker_that_hangs_up() as broker:
        access = load_kafka_access(broker, KafkaSecurity(protocol))  # type: ignore[arg-type]
        with pytest.raises(
            LetNotIn, match=f"{broker} lets this client not in: .*; is {protocol} what that port speaks"
        ):
            await access.raise_known_reason(KafkaConnectionError("Unable to bootstrap"), "use")


async def test_a_broker_that_is_gone_is_no_refusal() -> None:
    async with broker_that_hangs_up() as gone:
        pass
    await KafkaAccess(gone).raise_known_reason(KafkaConnectionError("Unable to bootstrap"), "use")


async def test_who_is_not_let_in_is_told_why_when_the_start_is_given_up() -> None:
    """By an error that is the operator's, and of the log that cannot be reached."""
    async with broker_that_hangs_up() as broker:
        with pytest.raises(LogClosed, match="what that port speaks"):
            async with KafkaBus(KafkaSettings(broker, start_seconds=0.5), "", "test"):
                pass
