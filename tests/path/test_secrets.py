"""Secrets reach nobody: planted where they are kept, and looked for in all that services say.

Records, copies in the store, log lines, metrics, spans, answers and refusals; plain, in base64, and in what is packed.
"""

import asyncio
import base64
import json
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import looptime  # noqa: F401 - the plugin makes minutes of waiting take milliseconds
import prometheus_client
import pytest
import structlog
from aiohttp import web
from aiokafka.protocol.admin import (
    ApiVersionResponse_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeResponse_v1,
)
from cryptography.hazmat.primitives import serialization
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hpa.external_metrics.collecting import CollectingSettings, MetricCollection
from hpa.external_metrics.connections import KafkaConnection, NamedConnections, PrometheusConnection
from sim.cluster import SimCluster
from sim.http import SimServer
from sim.settings import NodeSpec
from spillway import tracing
from spillway.api import (
    ApplyRequest,
    ExplainRequest,
    ExportRequest,
    GetRequest,
    JoinClusterRequest,
    ListClustersRequest,
    RequestError,
)
from spillway.bus import BusUnavailable
from spillway.events_scaling import BacklogObserved, LoadObserved, ScalePolicyDeclared
from spillway.kafka.bus import KafkaBus
from spillway.kafka.settings import KAFKA_PREFIX, KafkaSettings
from spillway.local_bus import LocalBroker
from spillway.model import Generation
from spillway.rpc.client import PlannerClient
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.settings import OperatorError, settings_from_environment
from spillway.store import MemoryStore, RedisStore, StoreSettings
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform
from spillway_local.kafka_security import Authority

from .member_work import ALL_SERVICES, FLEET, Confidential, do_everything
from .platform_steps import NAMESPACE, wait_until
from .real_members import OnRealMembers
from .what_is_told import Listener, unpacked_text

SECRET = "5ecr3t"
"""In all that is planted."""


class Ears:
    """Keeps, as text, all records, log lines, answers and spans that come while it listens."""

    def __init__(self, platform: InProcess) -> None:
        self._platform = platform
        self._listener = Listener(platform.broker)
        self._records: list[str] = []
        self._said: list[str] = []
        self._lines: list[Any] = []
        self._spans = InMemorySpanExporter()

    @contextmanager
    def listen_to_everything(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        tracing.use_provider(provider)
        caplog.set_level(logging.DEBUG)
        with structlog.testing.capture_logs() as lines:
            try:
                yield
            finally:
                tracing.shutdown()
        self._lines = [*lines, *(record.getMessage() for record in caplog.records)]

    def hear_answer(self, said: object) -> None:
        """An answer, or what was raised."""
        self._said.append(f"{getattr(said, 'code', '')} {said!r} {said}")

    def texts_by_source(self) -> dict[str, list[str]]:
        self._records += self._listener.texts_of_new_records()
        store: Any = self._platform.store
        kept = [*store._values.values(), *(one for history in store._histories.values() for one in history)]
        return {
            "the log": self._records,
            "the store": [repr([*store._values, *store._histories]), *map(unpacked_text, kept)],
            "log lines": [repr(line) for line in self._lines],
            "metrics": [prometheus_client.generate_latest().decode()],
            "spans": [span.to_json() for span in self._spans.get_finished_spans()],
            "answers": self._said,
        }


def assert_secrets_untold(ears: Ears, *secrets: str) -> None:
    texts = ears.texts_by_source()
    for place, found in texts.items():
        for secret in secrets:
            for form in (secret, base64.b64encode(secret.encode()).decode()):
                told = [text for text in found if form in text]
                assert not told, f"{place}: {told[0][max(0, told[0].index(form) - 200) :][:400]}"
    assert all(texts[place] for place in ("the log", "log lines", "metrics", "answers"))


async def ask_questions(platform: InProcess, ears: Ears) -> None:
    planner = platform.planner()
    ears.hear_answer(await planner.list_clusters(ListClustersRequest()))
    async for part in planner.export(ExportRequest()):
        ears.hear_answer(part)
    for question in (planner.get(GetRequest(NAMESPACE, "web")), planner.explain(ExplainRequest(NAMESPACE, "web"))):
        ears.hear_answer(await question)


# ── What members keep ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.looptime
async def test_data_of_secrets_in_members_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Of workloads, which name them, and of pods on lent nodes, whose Secrets are copied to the owner of the node."""
    kept = Confidential(f"{SECRET}-of-a-workload", f"{SECRET}-of-a-pool-pod")
    async with in_process_platform(FLEET, ()) as platform:
        ears = Ears(platform)
        with ears.listen_to_everything(caplog):
            for name in ALL_SERVICES:
                platform.start_instance(name)
            await do_everything(platform, kept)
            await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 1),)))
            await ask_questions(platform, ears)
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": SECRET}}
            with pytest.raises(RequestError, match="Secret") as refused:
                await platform.planner().apply(ApplyRequest((json.dumps(secret),)))
            ears.hear_answer(refused.value)
        assert all(ears.texts_by_source().values()), "nothing was overheard"
        assert_secrets_untold(ears, *asdict(kept).values(), SECRET)


# ── How we are let in ───────────────────────────────────────────────────────────────────────────────────────────────

TOKEN = f"{SECRET}-token-of-a-cluster"
Kubeconfig = dict[str, Any]


def make_kubeconfig(server: str, **user: Any) -> Kubeconfig:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def behind_proxy(config: Kubeconfig) -> Kubeconfig:
    config["clusters"][0]["cluster"]["proxy-url"] = f"http://me:{SECRET}-password@127.0.0.1:1"
    return config


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def encoded_pem(kind: str) -> str:
    return base64_text(f"-----BEGIN {kind}-----\n{base64_text(SECRET)}\n-----END {kind}-----\n")


WAYS: dict[str, Callable[[str, str], str]] = {
    "let in": lambda good, _: json.dumps(make_kubeconfig(good)),
    "an unknown token": lambda good, _: json.dumps(make_kubeconfig(good, token=f"{SECRET}-but-another")),
    "a server that says what it was asked": lambda _, echo: json.dumps(make_kubeconfig(echo)),
    "nobody there": lambda *_: json.dumps(make_kubeconfig("http://127.0.0.1:1")),
    "no YAML": lambda *_: f"users: [{{token: {TOKEN}\n  - ]{TOKEN}",
    "a password": lambda good, _: json.dumps(make_kubeconfig(good, username="me", password=f"{SECRET}-password")),
    "a password in the address": lambda *_: json.dumps(make_kubeconfig(f"http://me:{SECRET}-password@127.0.0.1:1")),
    "a token of two lines": lambda good, _: json.dumps(make_kubeconfig(good, token=f"{TOKEN}\n{TOKEN}")),
    "a token that is no text": lambda good, _: json.dumps(make_kubeconfig(good, token=[TOKEN])),
    "a key that is none": lambda good, _: json.dumps(
        make_kubeconfig(
            good,
            **{"client-certificate-data": encoded_pem("CERTIFICATE"), "client-key-data": encoded_pem("PRIVATE KEY")},
        )
    ),
    "a key without its certificate": lambda good, _: json.dumps(
        make_kubeconfig(good, **{"client-key-data": encoded_pem("PRIVATE KEY")})
    ),
    "a proxy that is gone, with a password": lambda good, _: json.dumps(behind_proxy(make_kubeconfig(good))),
    "a plugin": lambda good, _: json.dumps(
        make_kubeconfig(good, exec={"command": "none", "env": [{"name": "KEY", "value": f"{SECRET}-of-a-plugin"}]})
    ),
}


@asynccontextmanager
async def serve_member_and_echo() -> AsyncIterator[tuple[str, str]]:
    """A member's API, and one that answers with all that it is asked by, as a proxy's error page may."""

    async def echo_request(request: web.Request) -> web.Response:
        return web.Response(status=502, text=f"cannot be forwarded: {dict(request.headers)} {await request.text()}")

    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimCluster("own-1"))
        cluster.add_nodes([NodeSpec("n", 2)])
        good = SimServer(cluster, TOKEN)
        await good.start()
        stack.push_async_callback(good.close)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", echo_request)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield good.url, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.parametrize("way", WAYS)
async def test_credentials_of_a_cluster_are_told_to_nobody_however_they_fail(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "own-1.kubeconfig"
    async with serve_member_and_echo() as (good, echo):
        file.write_text(WAYS[way](good, echo))
        members: Any = {"own-1": None}
        platform = OnRealMembers(LocalBroker(), MemoryStore(), members, kubeconfigs={"own-1": file})
        ears = Ears(platform)
        with ears.listen_to_everything(caplog):
            for name in SERVICES:
                platform.start_instance(name)
            await wait_until(lambda: platform.planner().is_active, "a planner is active", 20)
            await platform.planner().join_cluster(JoinClusterRequest("own-1", "own-1", tier="own"))
            await wait_until(lambda: _is_cluster_judged(platform, way), "the cluster is ready, or why it is not", 20)
            await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 1),)))
            await ask_questions(platform, ears)
            for name in list(platform.running):
                await platform.stop_instance(name)
        assert_secrets_untold(ears, SECRET, TOKEN)


async def _is_cluster_judged(platform: InProcess, way: str) -> bool:
    (cluster,) = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return cluster.state == "Ready" if way == "let in" else bool(cluster.trouble)


async def test_tokens_of_callers_are_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Known ones and unknown ones, in calls that are answered, denied and not understood."""
    known, unknown = f"{SECRET}-known-caller", f"{SECRET}-unknown-caller"
    callers = tmp_path / "callers.json"
    entry = {"name": "ci", "token_sha256": sha256(known.encode()).hexdigest(), "verbs": ["*"], "namespaces": ["shop"]}
    callers.write_text(json.dumps({"callers": [entry]}))
    platform = InProcess(LocalBroker(), MemoryStore(), {})
    ears = Ears(platform)
    with ears.listen_to_everything(caplog):
        platform.start_instance("planner-1")
        await wait_until(lambda: platform.planner().is_active, "a planner is active", 20)
        server = RpcServer(platform.planner(), RpcSettings(port=0, callers=str(callers)))
        async with server:
            for token in (known, unknown):
                async with PlannerClient([server.address], token, retry_seconds=0.1) as client:
                    for request in (GetRequest("shop", "web"), GetRequest("bank", "web")):
                        with pytest.raises(RequestError) as refused:
                            await client.get(request)
                        ears.hear_answer(refused.value)
        await platform.stop_instance("planner-1")
    texts = ears.texts_by_source()
    assert any("PERMISSION_DENIED" in text for text in texts["answers"]), "a known caller was denied something"
    assert any("UNAUTHENTICATED" in text for text in texts["answers"])
    for found in texts.values():
        assert not [text for text in found if SECRET in text or base64_text(SECRET) in text]


# ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────────

URLS = {
    "nobody there": f"redis://me:{SECRET}@127.0.0.1:1/0",
    "a password that ends the address": f"redis://me:{SECRET}/x@127.0.0.1:6379/0",
    "no scheme": f"{SECRET}@127.0.0.1:6379",
    "no number for a database": f"redis://me:{SECRET}@127.0.0.1:1/{SECRET}",
    "an odd option": f"redis://me:{SECRET}@127.0.0.1:1/0?socket_timeout={SECRET}",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
async def test_the_password_of_redis_is_told_to_nobody(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = StoreSettings(url, timeout_seconds=0.5)
    with structlog.testing.capture_logs() as lines, pytest.raises((OperatorError, RequestError)) as raised:
        async with RedisStore(settings, "f1") as store:
            await store.put_many({"a": b"b"})
    causes, error = list[str](), raised.value.__cause__
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    told = [str(raised.value), repr(settings), *causes, *map(repr, lines), *caplog.messages]
    assert not [text for text in told if SECRET in text]


# ── How we are let in by Kafka ──────────────────────────────────────────────────────────────────────────────────────

VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
REQUEST = struct.Struct(">hhi")
"""The head of a request: its key, version, correlation."""


@asynccontextmanager
async def kafka_that_lets_nobody_in(authority: Authority) -> AsyncIterator[str]:
    """A broker with TLS that refuses every user, and says with what words it was asked, as a bad plugin may."""

    def answer(key: int, request: bytes) -> bytes:
        if key == VERSIONS:
            return ApiVersionResponse_v0(0, [(VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 0)]).encode()
        if key == HANDSHAKE:
            return SaslHandShakeResponse_v1(0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]).encode()
        return SaslAuthenticateResponse_v0(58, f"no user by {request.decode(errors='replace')}", b"").encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, _, correlation = REQUEST.unpack_from(request)
                body = answer(key, request)
                writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue_certificate("kafka"))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class KafkaFiles:
    """What an operator gives us, with SECRET in all of it that is one."""

    authority: Authority
    folder: Path

    def write_password(self) -> str:
        return self._write_file("password", f"{SECRET}-of-kafka\n")

    def write_key_that_is_none(self) -> str:
        return self._write_file("bad.key", base64.b64decode(encoded_pem("PRIVATE KEY")).decode())

    def write_key_with_a_phrase(self) -> str:
        _, key = self.authority.issue_certificate("client")
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        locked = serialization.BestAvailableEncryption(f"{SECRET}-phrase".encode())
        return self._write_file("locked.key", private.private_bytes(serialization.Encoding.PEM, form, locked).decode())

    def _write_file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


def variables_of_user(files: KafkaFiles, mechanism: str) -> dict[str, str]:
    return {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": mechanism,
        "SASL_USERNAME": "planner",
        "SASL_PASSWORD_FILE": files.write_password(),
        "SSL_CA_FILE": str(files.authority.certificate),
    }


def variables_of_certificate(files: KafkaFiles, key: str) -> dict[str, str]:
    certificate, _ = files.authority.issue_certificate("client")
    ca = str(files.authority.certificate)
    certified = {"SSL_CERTIFICATE_FILE": str(certificate), "SSL_KEY_FILE": key}
    return {"SECURITY_PROTOCOL": "SSL", "SSL_CA_FILE": ca, **certified}


KAFKA_WAYS: dict[str, Callable[[KafkaFiles], dict[str, str]]] = {
    "a password that the broker says again": lambda files: variables_of_user(files, "PLAIN"),
    "a password that is not sent": lambda files: variables_of_user(files, "SCRAM-SHA-512"),
    "nobody there": lambda files: {**variables_of_user(files, "PLAIN"), "BOOTSTRAP": "127.0.0.1:1"},
    "a password in its variable": lambda files: {**variables_of_user(files, "PLAIN"), "SASL_PASSWORD": SECRET},
    "a password in place of its file": lambda files: {
        **variables_of_user(files, "PLAIN"),
        "SASL_PASSWORD_FILE": SECRET,
    },
    "a password for a protocol without": lambda files: {"SASL_PASSWORD_FILE": SECRET},
    "a key that is none": lambda files: variables_of_certificate(files, files.write_key_that_is_none()),
    "a key with a pass phrase": lambda files: variables_of_certificate(files, files.write_key_with_a_phrase()),
    "a key in place of its file": lambda files: variables_of_certificate(files, f"{SECRET}-key"),
    "a key that is let in nowhere": lambda files: variables_of_certificate(
        files, str(files.authority.issue_certificate("client")[1])
    ),
}


@pytest.mark.parametrize("way", KAFKA_WAYS)
async def test_our_password_and_key_of_kafka_are_told_to_nobody_however_they_fail(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    authority = Authority(tmp_path / "ca")
    authority.ensure_files()
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing.use_provider(provider)
    async with kafka_that_lets_nobody_in(authority) as broker:
        variables = {"BOOTSTRAP": broker, "START_SECONDS": "0.4", **KAFKA_WAYS[way](KafkaFiles(authority, tmp_path))}
        environment = {KAFKA_PREFIX + name: value for name, value in variables.items()}
        with structlog.testing.capture_logs() as lines, pytest.raises((OperatorError, BusUnavailable)) as raised:
            async with KafkaBus(settings_from_environment(KafkaSettings, environment, KAFKA_PREFIX), "", "test"):
                pass
    tracing.shutdown()
    told = [*causes_of(raised.value), *map(repr, lines), *caplog.messages]
    told += [span.to_json() for span in spans.get_finished_spans()]
    assert_secret_is_not_in(told, *secrets_of(authority))


def secrets_of(authority: Authority) -> list[str]:
    """SECRET, and the private keys that were issued."""
    keys = (path.read_text().splitlines()[1] for path in authority.folder.glob("*.key"))
    return [SECRET, *keys]


def assert_secret_is_not_in(told: list[str], *secrets: str) -> None:
    assert told
    for secret in secrets:
        for form in (secret, base64_text(secret)):
            assert not [text for text in told if form in text]


def causes_of(error: BaseException | None) -> list[str]:
    found = list[str]()
    while error is not None:
        found += [str(error), repr(error)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


async def test_secrets_of_other_peoples_kafka_and_prometheus_are_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """hpa asks both for a policy; neither lets it in, and what it publishes says why."""
    caplog.set_level(logging.DEBUG)
    files = KafkaFiles(Authority(tmp_path / "ca"), tmp_path)
    files.authority.ensure_files()
    (tmp_path / "token").write_text(f"{SECRET}-token")
    published: list[Any] = []

    async def publish(event: Any) -> None:
        published.append(event)

    async with kafka_that_lets_nobody_in(files.authority) as broker, serve_member_and_echo() as (_, echo):
        asked = variables_of_user(files, "PLAIN")
        kafka = KafkaConnection(
            (broker,), "SASL_SSL", "PLAIN", "hpa", asked["SASL_PASSWORD_FILE"], str(files.authority.certificate)
        )
        prometheus = PrometheusConnection(echo, str(tmp_path / "token"))
        connections = NamedConnections({"orders": kafka}, {"main": prometheus})
        queue = {"bootstrapServers": broker, "consumerGroup": "g", "topic": "orders", "lagThreshold": "5"}
        query = {"serverAddress": echo, "query": "up", "threshold": "1"}
        triggers = [{"type": "kafka", "metadata": queue}, {"type": "prometheus", "metadata": query}]
        spec = {"scaleTargetRef": {"name": "web"}, "triggers": triggers}
        head = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
        manifest = json.dumps({**head, "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec}).encode()
        collecting = MetricCollection(
            publish, connections, CollectingSettings(answer_seconds=2.0), lambda: 5_000, Random(1)
        )
        collecting.start_questions(
            ScalePolicyDeclared(NAMESPACE, "web", Generation(1, 1), "ScaledObject", "web", manifest, 0)
        )
        with structlog.testing.capture_logs() as lines:
            asking = asyncio.create_task(collecting.run())
            await wait_until(
                lambda: {type(one) for one in published} == {BacklogObserved, LoadObserved}, "both said why", 20
            )
            asking.cancel()
            await asyncio.wait([asking])
    assert all(one.trouble for one in published)
    told = [*map(repr, published), *map(repr, lines), *caplog.messages, repr(connections), repr(kafka.read_access())]
    assert_secret_is_not_in(told, *secrets_of(files.authority))
