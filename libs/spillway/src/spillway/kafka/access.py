"""Connects clients to Kafka: the arguments of every aiokafka client, and the reason why a broker refuses a client.

Passwords and keys are in files, and their content is never shown. A process reads them once. LogReader opens new
connections each time, so it notices early that a broker would refuse a client that connects again.
"""

import asyncio
import logging
import random
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Never, TypeVar

from aiokafka.conn import create_conn
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.protocol.metadata import MetadataRequest

from spillway.bus import BusUnavailable
from spillway.kafka.internals import FrameRefused
from spillway.settings import OperatorError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

PATIENCE_SECONDS, ANSWER_SECONDS = 0.5, 10.0
"""The seconds of a broker's silence after which another one is asked too, and after which this one is given up."""
KNOCK_SECONDS = 3.0
"""The seconds that a broker may take to give the reason why it rejects a client."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""An ApiVersions request, version 0, without a client id. Its fields: length, API key, version, correlation id, client
id."""
_FORBIDDEN: Mapping[type, str] = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "group",
    TransactionalIdAuthorizationFailed: "transactional id",
    ClusterAuthorizationFailedError: "any topic",  # Kafka's answer to an idempotent producer.
}


T = TypeVar("T")
WORLD = (KafkaError, OSError, TimeoutError)
"""The errors of a failed attempt that come from the environment and not from a bug of ours."""
log = logging.getLogger(__name__)


class LetNotIn(KafkaConnectionError):  # type: ignore[misc]
    """Raised if a broker refuses us by TLS or authentication. That may be temporary, so the caller tries again."""


class LogClosed(BusUnavailable, OperatorError):
    """Raised if a broker refused us for as long as the caller waited. The operator must change our or its settings."""


class NotAllowed(OperatorError):
    """Raised if the broker admits us but forbids an operation that we need. The text names the missing right."""


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """The encryption and the credentials of a client.

    ca_file: empty trusts the system's CAs. certificate_file, key_file: our own certificate chain and private key.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism = "SCRAM-SHA-512"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @property
    def is_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The address of a Kafka and our credentials there.

    bootstrap: host:port of brokers, separated by commas. who: our name in error texts.
    proof: the arguments for TLS and authentication of each client.
    """

    bootstrap: str
    who: str = "this client"
    proof: Mapping[str, Any] = field(default_factory=dict, repr=False)

    async def client_arguments(self) -> dict[str, Any]:
        """Returns the arguments of a new aiokafka client, with the address of a broker that answers now."""
        tls = self.proof.get("ssl_context")
        return {"bootstrap_servers": await find_answering_broker(self.bootstrap, tls=tls), **self.proof}

    def check_allowed(self, error: BaseException, verb: str) -> None:
        """Raises NotAllowed if a client's error means a missing right. verb: the operation, for the text."""
        for cause in (error, error.__cause__):
            if kind := _FORBIDDEN.get(type(cause)):
                named = cause.args[0] if cause and cause.args else ""
                names = named if isinstance(named, str) else ", ".join(sorted(named))
                raise NotAllowed(
                    f"Kafka: {self.who} may not {verb} {kind} {names}: see deploy/kafka/acls.sh"
                ) from error

    async def raise_known_reason(self, error: BaseException, verb: str) -> None:
        """Raises NotAllowed or LetNotIn if the reason is known. aiokafka only logs the reason, without an error."""
        self.check_allowed(error, verb)
        reason = await self._find_refusal() if isinstance(error, KafkaConnectionError) else ""
        if reason:
            raise LetNotIn(reason) from error

    async def _find_refusal(self) -> str:
        """Returns the reason of the first broker that refuses us; empty if a broker admits us or no reason is given."""
        for broker in self.bootstrap.split(","):
            host, _, port = broker.rpartition(":")
            try:
                async with asyncio.timeout(KNOCK_SECONDS):
                    connection = await create_conn(host.strip("[]"), int(port), **self.proof)
                    try:
                        await connection.send(MetadataRequest([]))
                    finally:
                        connection.close()
            except (TimeoutError, ConnectionRefusedError):
                continue
            except Exception as error:  # Another program may listen there, and aiokafka decodes any answer.
                return f"Kafka at {broker} lets {self.who} not in: {self._hide_password(self._error_reason(error))}"
            return ""
        return ""

    def _hide_password(self, text: str) -> str:
        """Hides the password in a text: a broker may repeat its request in an error."""
        password = self.proof.get("sasl_plain_password", "")
        return text.replace(password, "(hidden)") if password else text

    def _error_reason(self, error: Exception) -> str:
        cause = error.__cause__ if isinstance(error.__cause__, (ssl.SSLError, FrameRefused)) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, SaslAuthenticationFailed):
            return str(cause.args[0] if cause.args else cause)
        protocol = self.proof.get("security_protocol", "PLAINTEXT")
        if isinstance(cause, BrokerResponseError):
            mechanism = f" and {self.proof['sasl_mechanism']}" if "sasl_mechanism" in self.proof else ""
            return f"{cause.message}, asked for {protocol}{mechanism}"
        return f"{cause or type(cause).__name__}; is {protocol} what that port speaks?"


def load_kafka_access(bootstrap: str, security: KafkaSecurity) -> KafkaAccess:
    """Reads the files of the credentials. Raises OperatorError for a file that is wrong."""
    proof: dict[str, Any] = {"security_protocol": security.protocol}
    if security.is_tls:
        proof["ssl_context"] = _tls_context(security)
    if security.is_sasl:
        proof |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": _read_password(security.password_file),
        }
    return KafkaAccess(bootstrap, f"user {security.username!r}" if security.is_sasl else "this client", proof)


def _tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    if security.ca_file:
        _read_file("CA file", security.ca_file)
    try:
        context = ssl.create_default_context(cafile=security.ca_file or None)
    except ssl.SSLError as error:
        raise OperatorError(
            f"Kafka: CA file {security.ca_file!r}: {_ssl_error_text(error)}: expected certificates, PEM"
        ) from error
    if not security.certificate_file:
        return context

    def refuse_pass_phrase() -> Never:
        raise OperatorError(f"Kafka: key file {security.key_file!r}: encrypted: expected a key without a pass phrase")

    _read_file("certificate file", security.certificate_file)
    _read_file("key file", security.key_file)
    try:
        context.load_cert_chain(security.certificate_file, security.key_file, refuse_pass_phrase)
    except ssl.SSLError as error:
        files = f"certificate file {security.certificate_file!r} and key file {security.key_file!r}"
        raise OperatorError(
            f"Kafka: {files}: {_ssl_error_text(error)}: expected a certificate and its key, PEM"
        ) from error
    return context


def _read_password(name: str) -> str:
    """Returns the password in a file, without the final line break. Raises OperatorError."""
    try:
        password = _read_file("password file", name).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise OperatorError(f"Kafka: password file {name!r}: expected text, UTF-8") from None
    if not password:
        raise OperatorError(f"Kafka: password file {name!r}: empty: expected a password")
    return password


def _read_file(what: str, name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        shown = repr(name) if "/" in name else "(hidden, since it is no path)"  # It may be a password.
        raise OperatorError(f"Kafka: {what} {shown}: {error.strerror}: expected a file that can be read") from None


def _ssl_error_text(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


async def keep_trying(attempt: Callable[[], Awaitable[T]], seconds: float, wait: float, wait_max: float) -> T:
    """Calls attempt until it succeeds, and returns its answer. Raises BusUnavailable after `seconds`.

    wait: seconds until the second try; doubled each time up to wait_max.
    """
    last: BaseException | None = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await attempt()
                except WORLD as error:
                    if isinstance(error, LetNotIn) and not isinstance(last, LetNotIn):
                        log.warning("%s: trying again for %s s", error.args[0], seconds)
                    last = error
                await asyncio.sleep(wait)
                wait = min(wait * 2, wait_max)
    except TimeoutError as error:
        if isinstance(last, LetNotIn):
            raise LogClosed(f"{last.args[0]} (tried for {seconds} s)") from error
        raise BusUnavailable(f"no answer from the log within {seconds} s: {last!r}") from error


async def find_answering_broker(
    bootstrap: str, patience_seconds: float = PATIENCE_SECONDS, tls: ssl.SSLContext | None = None
) -> str:
    """Returns one of these brokers that answers.

    If none answers, returns all of them, so that the client raises the error.
    A broker that is frozen or cut off accepts connections and stays silent, and each client that begins with it waits
    for its whole request. So another broker is also asked when the earlier ones are silent for patience_seconds.
    """
    brokers = bootstrap.split(",")
    if len(brokers) == 1:
        return bootstrap
    random.shuffle(brokers)
    asked: set[asyncio.Task[str]] = set()
    try:
        while brokers or asked:
            if brokers:
                asked.add(asyncio.create_task(_address_if_answering(brokers.pop(), tls)))
            patience = patience_seconds if brokers else None
            done, asked = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for broker in filter(None, (task.result() for task in done)):
                return broker
        return bootstrap
    finally:
        for task in asked:
            task.cancel()


async def _address_if_answering(broker: str, tls: ssl.SSLContext | None) -> str:
    """Returns the broker's address once it answers; empty when it does not. Every broker answers ApiVersions."""
    host, _, port = broker.rpartition(":")
    with suppress(OSError, EOFError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
            try:
                writer.write(_API_VERSIONS)
                await reader.readexactly(4)
                return broker
            finally:
                writer.close()
    return ""
