"""Calls one instance of a service over gRPC, for `spillway doctor`. Returns its answer, or why there is none."""

import asyncio
import ssl
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spillway.rpc.calls import LENDING, PLANNER, SCALING, RpcService
from spillway.rpc.endpoints import read_file
from spillway.rpc.fleets import fleet_in_metadata
from spillway.rpc.refusals import received_refusal
from spillway.rpc.trailers import LEADER_TRAILER, VERSION_TRAILER

HARMLESS_VERB: Final = {PLANNER.name: "list_clusters", SCALING.name: "list_policies", LENDING.name: "list_lending"}
"""The verb that the probe calls, by service. Such a verb changes nothing, and an empty request of it is valid."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Our credentials. ca: file; it turns TLS on. certificate, key: files of our own, both or neither."""

    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer of an instance.

    code: OK, or the name of a status, which `text` explains; UNAVAILABLE: no answer. serving: True if its health
    service answers so.
    leader: the active instance, as far as it knows. version: its own. stale: it is a standby.
    certificate_ends: the end of its certificate in Unix seconds; None without TLS, or where nothing answers.
    reason: the reason of a refusal, as in RequestError. tls_differs: True if something listens there, and its TLS does
    not fit ours. fleet: the id of its fleet; empty: unknown.
    """

    endpoint: str
    code: str
    text: str = ""
    serving: bool = False
    leader: str = ""
    version: str = ""
    stale: bool = False
    certificate_ends: float | None = None
    reason: str = ""
    tls_differs: bool = False
    fleet: str = ""


async def probe_instance(service: RpcService, endpoint: str, identity: Identity, seconds: float) -> ProbeResult:
    """Asks an instance. Its errors are in the result. Raises OperatorError for files of ours that cannot be read."""
    credentials = _client_credentials(identity) if identity.ca else None
    channel = aio.secure_channel(endpoint, credentials) if credentials else aio.insecure_channel(endpoint)
    try:
        found = await _ask_instance(channel, service, endpoint, identity, seconds)
        return replace(found, certificate_ends=await _certificate_end_unix_seconds(endpoint, identity, seconds))
    except aio.AioRpcError as error:
        code, text = error.code().name, error.details() or ""
        why, tls_differs = (
            await _connection_failure(endpoint, identity, seconds) if code == "UNAVAILABLE" else ("", False)
        )
        return ProbeResult(endpoint, code, why or text, tls_differs=tls_differs)
    finally:
        await channel.close()


async def _ask_instance(
    channel: Any, service: RpcService, endpoint: str, identity: Identity, seconds: float
) -> ProbeResult:
    health = health_pb2_grpc.HealthStub(channel)
    told = await health.Check(health_pb2.HealthCheckRequest(service=service.name), timeout=seconds)
    serving = told.status == health_pb2.HealthCheckResponse.SERVING
    call = service.calls[HARMLESS_VERB[service.name]]
    metadata = (("authorization", f"Bearer {identity.token}"),) if identity.token else ()
    answer = channel.unary_unary(call.path)(b"", timeout=seconds, metadata=metadata)
    try:
        reply = call.read_reply(await answer)
    except aio.AioRpcError as error:
        trailer = error.trailing_metadata()
        refused, fleet = received_refusal(error.code().name, error.details() or "", trailer), fleet_in_metadata(trailer)
        return ProbeResult(
            endpoint,
            refused.code,
            refused.text,
            serving,
            *_leader_and_version(trailer),
            reason=refused.reason,
            fleet=fleet,
        )
    trailer = await answer.trailing_metadata()
    return ProbeResult(
        endpoint, "OK", "", serving, *_leader_and_version(trailer), reply.stale, fleet=fleet_in_metadata(trailer)
    )


def _leader_and_version(trailer: Any) -> tuple[str, str]:
    """Returns the leader and the version in a trailer."""
    pairs = dict(trailer or ())
    return str(pairs.get(LEADER_TRAILER, "")), str(pairs.get(VERSION_TRAILER, ""))


def _client_credentials(identity: Identity) -> Any:
    files = [read_file(name, "client identity") for name in (identity.key, identity.certificate) if name]
    return grpc.ssl_channel_credentials(read_file(identity.ca, "ca"), *files)


async def _connection_failure(endpoint: str, identity: Identity, seconds: float) -> tuple[str, bool]:
    """Returns why there is no connection, and whether TLS is the reason. The text is empty if gRPC's says as much."""
    try:
        await _read_peer_certificate(endpoint, None, seconds)
    except (OSError, ValueError, TimeoutError) as error:
        return f"nothing listens there: {str(error) or 'no answer'}", False
    try:
        await _read_peer_certificate(endpoint, _tls_context(identity), seconds)
    except ssl.SSLCertVerificationError as error:
        return f"TLS: its certificate is not believed: {error.verify_message}", True
    except (OSError, TimeoutError):
        return ("it listens, but does not speak TLS", True) if identity.ca else ("", False)
    return ("", False) if identity.ca else ("it listens and speaks TLS, and we do not: no CA is given", True)


async def _certificate_end_unix_seconds(endpoint: str, identity: Identity, seconds: float) -> float | None:
    """Returns the end of the endpoint's certificate in Unix seconds; None without TLS, or if we do not trust it."""
    if not identity.ca:
        return None
    try:
        shown = await _read_peer_certificate(endpoint, _tls_context(identity), seconds)
    except (OSError, TimeoutError):
        return None
    return ssl.cert_time_to_seconds(shown["notAfter"]) if "notAfter" in shown else None


def _tls_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=identity.ca or None)
    if not identity.ca:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity.certificate:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


async def _read_peer_certificate(endpoint: str, context: ssl.SSLContext | None, seconds: float) -> dict[str, Any]:
    """Connects, and returns the peer's certificate; empty without TLS.

    Raises OSError, TimeoutError, or ValueError for an endpoint that is no address.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    name = host if context else None
    async with asyncio.timeout(seconds):
        _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
        writer.close()
        return dict(writer.get_extra_info("peercert") or {})
