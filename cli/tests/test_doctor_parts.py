"""What the doctor learns of real parts: health pages, API servers, Kafka, Redis; and the command as a whole."""

import asyncio
import base64
import json
import re
import socket
import ssl
import types
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from spillway import metrics
from spillway.bus import BusUnavailable
from spillway.clusters.credentials import Endpoint
from spillway.clusters.rights import SNAPSHOT, Right
from spillway.kafka.access import KafkaAccess
from spillway.kafka.inspection import disks_of, inspect_log
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway.lending_marks import FLEET, LENDING, POOL_TAINT
from spillway.running.process import Process, ProcessSettings, _serving_health
from spillway.store import MARKER_KEY, RedisStore, StoreSettings
from spillway.version import VERSION
from spillway_cli.config import ADDRESSES_FILE
from spillway_cli.doctor import log
from spillway_cli.doctor.checks import CheckOutcome
from spillway_cli.doctor.cluster_visits import (
    LISTED,
    REVIEWS,
    credential_expires_at,
    is_credential_needed,
    parse_credentials_entry,
    server_expires_at,
    visit_cluster,
)
from spillway_cli.doctor.pages import read_health_pages, read_readiness_text
from spillway_cli.main import app
from spillway_local.member_credentials import ensure_certificate

SECONDS = 10.0


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ── Health pages ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_health_port_tells_who_it_is_and_what_it_waits_for(port: int) -> None:
    metrics.BUILD.labels(VERSION).set(1)
    metrics.DEAD_LETTERS.labels("spillway.pods.v1").inc(0)
    process = Process("planner", ProcessSettings(health_port=port))
    process.set_ready("log", False, "it is read")
    async with _serving_health(process):
        found = await asyncio.to_thread(read_health_pages, f"planner-1=127.0.0.1:{port}", SECONDS)
        assert (found.name, found.trouble, found.version) == ("planner-1", "", VERSION)
        assert await asyncio.to_thread(read_readiness_text, f"127.0.0.1:{port}", SECONDS) == "log: it is read"
        assert found.not_ready == {"log": "it is read"}
        assert "spillway.pods.v1" in found.dead_letters_by_topic
        assert "spillway_callers_file_bad" in found.values
        process.set_ready("log", True)
        found = await asyncio.to_thread(read_health_pages, f"127.0.0.1:{port}", SECONDS)
        assert (found.name, found.not_ready) == (f"127.0.0.1:{port}", {})
        assert await asyncio.to_thread(read_readiness_text, f"127.0.0.1:{port}", SECONDS) == "ready"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:80", "127.0.0.1:http", ""])
def test_a_health_port_that_does_not_answer_is_said(address: str) -> None:
    assert read_health_pages(address, 2.0).trouble


# ── Clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class ApiServer:
    """Answers each path with 200, or what it is told to; date: what its clock says, None is the right time.

    nodes: what it has with a label that is asked for. rights: what its account may do, as (verb, resource, part); None:
    it does not say.
    """

    statuses: dict[str, int] = field(default_factory=dict)
    date: datetime | None = None
    nodes: list[dict[str, Any]] = field(default_factory=list)
    rights: tuple[tuple[str, str, str], ...] | None = None

    async def answer_request(self, request: web.Request) -> web.Response:
        headers = {"Date": format_datetime(self.date, usegmt=True)} if self.date else {}
        if request.path == REVIEWS and self.rights is not None:
            asked = (await request.json())["spec"]["resourceAttributes"]
            given = (asked["verb"], asked["resource"], asked["subresource"]) in self.rights
            return web.json_response({"status": {"allowed": given}}, status=201)
        label = request.query.get("labelSelector", "")
        items = [node for node in self.nodes if label and label in node["metadata"]["labels"]]
        return web.json_response({"items": items}, status=self.statuses.get(request.path, 200), headers=headers)


def node(name: str, label: str, *taints: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {label: "prod-1"}},
        "spec": {"taints": [{"key": key} for key in taints]} if taints else {},
    }


@asynccontextmanager
async def write_credential_of(server: ApiServer, folder: Path, token: str = "t") -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer_request)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        write_kubeconfig(folder, f"http://127.0.0.1:{runner.addresses[0][1]}", token)
        yield "own-1"
    finally:
        await runner.cleanup()


def write_kubeconfig(folder: Path, server: str, token: str) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    (folder / "own-1.kubeconfig").write_text(json.dumps(config))


async def test_a_cluster_that_lets_us_in_is_found_well(tmp_path: Path) -> None:
    async with write_credential_of(ApiServer(), tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS)
    assert (found.bad, found.trouble, found.denied, found.expires) == ("", "", (), None)
    assert abs(found.skew_seconds or 99) < SECONDS


async def test_nodes_that_bear_the_taint_of_lending_are_named_and_virtual_ones_are_not(tmp_path: Path) -> None:
    nodes = [
        node("n1", FLEET, LENDING),
        node("virtual", FLEET, POOL_TAINT),
        node("n2", FLEET),
        node("n3", "x", LENDING),
    ]
    async with write_credential_of(ApiServer(nodes=nodes), tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS)
    assert found.marked == (("n1", "prod-1"),)


async def test_another_services_credential_is_shown_and_asked_for_no_list(tmp_path: Path) -> None:
    """What it may list is not what snapshot may. The bridge's is looked at where there is one."""
    async with write_credential_of(ApiServer({"/api/v1/nodes": 403}), tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS, "propagator")
    assert (found.service, found.trouble, found.denied) == ("propagator", "", ())
    assert parse_credentials_entry("vk-bridge=/etc/x") == ("vk-bridge", Path("/etc/x"))
    assert parse_credentials_entry("/etc/x") == ("snapshot", Path("/etc/x"))
    needed = {(service, name) for service in ("snapshot", "propagator", "vk-bridge") for name in ("own-1", "own-2")
              if is_credential_needed(service, tmp_path, name)}  # fmt: skip
    assert needed == {(one, name) for one in ("snapshot", "propagator") for name in ("own-1", "own-2")} | {
        ("vk-bridge", "own-1")
    }


@pytest.mark.parametrize(
    ("rights", "lacking"),
    [
        pytest.param((("deletecollection", "pods", ""), ("get", "pods", "log"), ("list", "nodes", "")), (), id="all"),
        pytest.param((("get", "pods", "log"), ("list", "nodes", "")), ("deletecollection pods",), id="one less"),
        pytest.param((), ("deletecollection pods", "get pods/log", "list nodes"), id="none"),
        pytest.param(None, None, id="not served"),
    ],
)
async def test_the_bridges_account_is_asked_for_the_rights_that_it_can_do_without(
    rights: tuple[tuple[str, str, str], ...] | None, lacking: tuple[str, ...] | None, tmp_path: Path
) -> None:
    async with write_credential_of(ApiServer(rights=rights), tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS, "vk-bridge")
    said = None if found.lacking is None else tuple(f"{one.verb} {one.resource}" for one in found.lacking)
    assert (found.trouble, said) == ("", lacking)


async def test_what_a_cluster_forbids_is_named_by_its_resource(tmp_path: Path) -> None:
    server = ApiServer({"/apis/batch/v1/jobs": 403, "/api/v1/nodes": 403})
    async with write_credential_of(server, tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS)
    assert found.denied == ("nodes", "jobs.batch")


def test_what_is_listed_is_what_a_collector_needs() -> None:
    needed = {right for rule in SNAPSHOT.rules if not rule.without for right in rule.rights() if right.verb == "list"}
    assert {Right("list", kind.group, kind.plural) for kind in LISTED} == needed


async def test_a_token_that_is_refused_is_said(tmp_path: Path) -> None:
    async with write_credential_of(ApiServer({"/version": 401}), tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS)
    assert ("401" in found.trouble, found.not_known) == (True, True)


async def test_a_clock_that_is_wrong_is_measured(tmp_path: Path) -> None:
    server = ApiServer(date=datetime.now(UTC) + timedelta(hours=1))
    async with write_credential_of(server, tmp_path) as credential:
        found = await visit_cluster(tmp_path, "own-1", credential, SECONDS)
    assert found.skew_seconds is not None
    assert 3600 - SECONDS < found.skew_seconds < 3600 + SECONDS


async def test_a_cluster_that_is_down_and_a_credential_that_is_none(tmp_path: Path, port: int) -> None:
    write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}", "t")
    assert "connection" in (await visit_cluster(tmp_path, "own-1", "own-1", SECONDS)).trouble
    (tmp_path / "own-1.kubeconfig").write_text("{}")
    assert "contexts" in (await visit_cluster(tmp_path, "own-1", "own-1", SECONDS)).bad
    assert "absent.kubeconfig" in (await visit_cluster(tmp_path, "own-1", "absent", SECONDS)).bad


def json_web_token(claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


def client_certificate(ends: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(ends - timedelta(days=9)).not_valid_after(ends)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


ENDS = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("endpoint", "expires"),
    [
        pytest.param(Endpoint("s", token=json_web_token({"exp": 1_900_000_000})), 1_900_000_000.0, id="a token"),
        pytest.param(Endpoint("s", token=json_web_token({"sub": "x"})), None, id="a token without an end"),
        pytest.param(Endpoint("s", token="opaque"), None, id="no JWT"),
        pytest.param(Endpoint("s", token="a.b.c"), None, id="three parts, no JWT"),
        pytest.param(Endpoint("s", token=json_web_token([1])), None, id="no claims"),
        pytest.param(Endpoint("s", client_certificate=client_certificate(ENDS)), ENDS.timestamp(), id="a certificate"),
        pytest.param(
            Endpoint("s", token=json_web_token({"exp": 5}), client_certificate=client_certificate(ENDS)),
            5.0,
            id="the sooner",
        ),
    ],
)
def test_when_a_credential_ends(endpoint: Endpoint, expires: float | None) -> None:
    assert credential_expires_at(endpoint) == expires


async def test_when_an_api_servers_certificate_ends(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    ensure_certificate(certificate, key, "api")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await server_expires_at(Endpoint(url, ca=certificate.read_bytes())) == ends
        assert await server_expires_at(Endpoint(url)) is None, "who does not believe it learns nothing"
    assert await server_expires_at(Endpoint("http://127.0.0.1:1")) is None


# ── Log and store ───────────────────────────────────────────────────────────────────────────────────────────────────


def checks_that_failed(found: Any, settings: TopicSettings) -> list[tuple[str, str]]:
    checks = log.check_log(found, "", settings)
    return [(check.name, check.outcome.value) for check in checks if check.outcome is not CheckOutcome.ok]


class Broker:
    """Answers what a broker is asked of its disks with one error; None: it is too old for the request."""

    def __init__(self, code: int | None) -> None:
        self._code = code

    async def send(self, node: int, request: object) -> Any:
        if self._code is None:
            raise NotImplementedError("the broker does not know DescribeLogDirs")
        return types.SimpleNamespace(to_object=lambda: {"error_code": self._code, "results": []})


@pytest.mark.parametrize(
    ("code", "may_not_ask"),
    [
        pytest.param(31, True, id="no right"),
        pytest.param(None, True, id="too old"),
        pytest.param(56, False, id="broken"),
    ],
)
async def test_a_broker_that_does_not_tell_of_its_disks_says_whether_we_may_ask(
    code: int | None, may_not_ask: bool
) -> None:
    (disk,) = await disks_of(Broker(code), 1)
    assert (bool(disk.trouble), disk.may_not_ask) == (True, may_not_ask)


@pytest.mark.kafka
async def test_topics_as_they_are_on_a_broker(kafka_bootstrap: str) -> None:
    prefix = f"{uuid.uuid4().hex[:8]}."
    settings = TopicSettings(topic_prefix=prefix, partitions_cluster=2, partitions_workload=2)
    fleet = await ensure_topics(KafkaAccess(kafka_bootstrap), settings, "doctor")
    found = await inspect_log(KafkaAccess(kafka_bootstrap), prefix, 30)
    assert (found.fleet, found.brokers, len(found.disks)) == (fleet, 1, 1)
    assert found.disks[0].trouble == ""
    assert 0 < found.disks[0].free <= found.disks[0].size
    disks = {f"disk of broker {found.disks[0].broker} {found.disks[0].path}"}
    assert [one for one in checks_that_failed(found, settings) if one[0] not in disks] == [("copies", "warning")]
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    try:
        name = f"{prefix}spillway.placements.v1"
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"cleanup.policy": "delete"})])
        found = await inspect_log(KafkaAccess(kafka_bootstrap), prefix, 30)
        assert ("cleanup and sizes", "failed") in checks_that_failed(found, settings)
        await admin.delete_topics([name])
        found = await inspect_log(KafkaAccess(kafka_bootstrap), prefix, 30)
        assert [one for one in checks_that_failed(found, settings) if one[0] not in disks] == [("topics", "failed")]
        assert found.fleet == ""
    finally:
        await admin.close()


async def test_a_log_that_is_down_is_said_in_time(port: int) -> None:
    with pytest.raises(BusUnavailable, match=str(port)):
        await inspect_log(KafkaAccess(f"127.0.0.1:{port}"), "", 2.0)


@pytest.mark.redis
async def test_a_store_tells_whether_it_takes_writes_and_has_something_of_the_fleet(redis_url: str) -> None:
    async with RedisStore(StoreSettings(redis_url), uuid.uuid4().hex) as store:
        found = await store.inspect_redis()
        assert (found.writes, found.filled, found.bytes_used > 0) == (True, False, True)
        await store.set_marker("x")
        assert (await store.inspect_redis()).filled
        await store._redis.delete(store._prefix + MARKER_KEY)


# ── The command ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_there_is_failed_what_was_not_named_is_skipped_and_the_code_is_1(spillway: Any, port: int) -> None:
    """Planner and hpa answer; there is no descheduler, no Kafka."""
    result = spillway("--kafka", f"127.0.0.1:{port}", "--lending-endpoint", f"127.0.0.1:{port}", "doctor", "-o", "json")
    found = {check["name"]: check["outcome"] for check in json.loads(result.stdout)}
    expected = {
        f"planner {spillway.address}": "failed",  # The fake one says that it does not serve.
        "planner turn": "ok",
        f"hpa {spillway.scaling_address}": "failed",
        f"descheduler 127.0.0.1:{port}": "failed",
        "descheduler turn": "skipped",
        "versions": "ok",
        "processes": "skipped",
        "Kafka": "failed",
        "Redis": "skipped",
        "clusters": "warning",
        "brakes": "ok",
        "workloads": "ok",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert result.exit_code == 1
    assert "failed" in result.stderr


def run_doctor(silent: int, *flags: str) -> Any:
    """In a folder where `spillway up` wrote addresses; a port at which nobody listens stands for all that are down."""
    place = f"127.0.0.1:{silent}"
    places = {name: [place] for name in ("endpoints", "scaling_endpoints", "lending_endpoints")}
    written = {**places, "kafka": place, "redis": f"redis://{place}/0", "health": [f"planner-1={place}"]}
    ADDRESSES_FILE.parent.mkdir(exist_ok=True)
    ADDRESSES_FILE.write_text(json.dumps(written))
    return CliRunner(env={"TERM": "dumb"}).invoke(app, [*flags, "doctor", "--seconds", "2"])


def test_where_nothing_runs_one_line_says_so_and_what_starts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, port: int
) -> None:
    """As after `make down`; the same of addresses that nobody's `make up` wrote."""
    monkeypatch.chdir(tmp_path)
    said = f"nothing runs at 127.0.0.1:{port}: `make up` starts it here (its address is that of {ADDRESSES_FILE})"
    result = run_doctor(port)
    assert (result.exit_code, result.stdout) == (1, f"✗ failed   platform: {said}\n")
    assert result.stderr == "1 failed\n"
    line, hint = run_doctor(port, "--endpoint", f"localhost:{port}").stdout.splitlines()
    assert "no service, health port, Kafka or Redis answers" in line
    assert "`spillway config` shows the addresses" in hint


def test_what_is_down_in_part_is_told_check_by_check(
    spillway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, port: int
) -> None:
    """A planner that answers; a program of whomever that listens where a planner is to be, and says nothing."""
    monkeypatch.chdir(tmp_path)
    assert "✗ failed   Kafka: " in run_doctor(port, "--endpoint", spillway.address).stdout
    with socket.socket() as hangs:
        hangs.bind(("127.0.0.1", 0))
        hangs.listen()
        text = run_doctor(port, "--endpoint", f"127.0.0.1:{hangs.getsockname()[1]}").stdout
    assert "✗ failed   Kafka: " in text


@pytest.mark.kafka
def test_a_log_that_runs_alone_is_told_check_by_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, port: int, kafka_bootstrap: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"planner 127.0.0.1:{port}" in run_doctor(port, "--kafka", kafka_bootstrap).stdout


def test_a_line_for_each_check_and_what_mends_it_below(spillway: Any, port: int) -> None:
    result = spillway("--kafka", f"127.0.0.1:{port}", "doctor", "--quiet", "--seconds", "2")
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("✗ failed   Kafka: "))
    assert lines[at + 1].strip().startswith("→ are the brokers up?")
    assert not [line for line in lines if line.startswith("✓")]


def test_chapters_that_hints_name_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    sources = "".join(file.read_text() for file in Path(log.__file__).parent.glob("*.py"))
    named = set(re.findall(r"docs/(\w+\.md), ([A-Z]\w*(?: [a-z]\w*)*)", sources))
    assert ("operations.md", "Partitions that differ") in named
    for file, chapter in named:
        headings = [line.lstrip("# ") for line in (docs / file).read_text().splitlines() if line.startswith("#")]
        assert any(heading.startswith(chapter) for heading in headings), f"docs/{file}, {chapter}"
