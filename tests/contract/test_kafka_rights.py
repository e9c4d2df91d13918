"""With the rights of deploy/kafka/acls.sh, and no others, each role can do on a real broker what it is there for."""

import asyncio
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from hpa.external_metrics.connections import KafkaConnection
from hpa.external_metrics.lag import KafkaLag, LagSettings, LagUnknown
from spillway.addresses import (
    BACKLOG,
    CLAIM_TOPIC_BY_SERVICE,
    CLUSTERS,
    DEAD_LETTERS,
    EVERY_READER,
    LOAD,
    PLACEMENTS,
    RECALLS,
    TOPICS,
    Topic,
)
from spillway.bus import Bus, OutcomeUnknown, has_reached_ends
from spillway.events import Event, TurnTaken
from spillway.kafka.access import LogClosed, NotAllowed
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kafka.topics import TopicSettings
from spillway_cli import log_commands
from spillway_cli.main import app
from spillway_local.kafka_security import Authority
from spillway_local.kafka_server import PORTS_PER_NODE, kafka_tool_command
from spillway_local.ports import session_port
from spillway_local.programs import Stage, running_stages
from spillway_local.tools import MissingTool
from tests.contract.bus_harness import DEADLINE_SECONDS, any_event_on, read_to_current_end
from tests.contract.secured_kafka import (
    CLUSTER,
    ROLES,
    SCRIPT,
    SERVICES,
    Right,
    SecuredKafka,
    make_secured_server,
    rights_at_broker,
    rights_of_script,
)

STANDBYS = tuple(service for service, topic in CLAIM_TOPIC_BY_SERVICE.items() if topic.committed)
SHARERS = tuple(service for service in SERVICES if service not in STANDBYS)
FEW = TopicSettings(partitions_cluster=2, partitions_workload=2)
START_SECONDS = 3.0
OTHER_WORD = "another-word-than-was-set"


# ── The script ──────────────────────────────────────────────────────────────────────────────────────────────────────


def names_allowed_to_role(rights: list[Right], role: str, operation: str, kind: str = "--topic") -> set[str]:
    """Names of whole resources, not of prefixes."""
    return {
        right.name
        for right in rights
        if (right.principal, right.operation, right.kind) == (f"User:spillway-{role}", operation, kind)
        and right.pattern == "literal"
    }


def test_each_topic_is_written_by_its_emitters_alone(tmp_path: Path) -> None:
    rights = rights_of_script(tmp_path, "f-1")
    anyone = {"anyone": "publisher"}
    for topic in TOPICS:
        writers = {role for role in ROLES if topic.name in names_allowed_to_role(rights, role, "Write")}
        emitters = set(SERVICES) if EVERY_READER in topic.emitters else set(topic.emitters)
        assert writers == {anyone.get(emitter, emitter) for emitter in emitters}, topic.name


@pytest.mark.parametrize("service", SERVICES)
def test_each_topic_is_read_by_its_readers_alone(service: str, tmp_path: Path) -> None:
    """Whose log it is and each service's own turns are read, too."""
    read = names_allowed_to_role(rights_of_script(tmp_path, "f-1"), service, "Read")
    assert read == {topic.name for topic in TOPICS if service in topic.readers}


@pytest.mark.parametrize(
    ("role", "operation", "kind", "names"),
    [
        pytest.param("publisher", "Write", "--topic", {LOAD.name, BACKLOG.name}, id="what anyone may publish"),
        pytest.param("publisher", "Read", "--topic", {"spillway.fleet.v1"}, id="whose log it is"),
        pytest.param("cli", "Write", "--topic", set(), id="the command writes nothing"),
        pytest.param("cli", "Read", "--topic", {topic.name for topic in TOPICS}, id="and reads all"),
        pytest.param("planner", "Write", "--transactional-id", {"f-1.planner"}, id="its own writer"),
        pytest.param("planner", "Read", "--group", {"f-1.planner.standby"}, id="its own turn"),
        pytest.param("snapshot", "Read", "--group", {"f-1.snapshot"}, id="its own clusters"),
        pytest.param("snapshot", "Write", "--transactional-id", set(), id="no writer"),
    ],
)
def test_a_role_has_these_rights(role: str, operation: str, kind: str, names: set[str], tmp_path: Path) -> None:
    assert names_allowed_to_role(rights_of_script(tmp_path, "f-1"), role, operation, kind) == names


def test_every_name_has_the_prefix_of_its_fleet(tmp_path: Path) -> None:
    """Groups have none: they bear the fleet's id."""
    prefixed = rights_of_script(tmp_path, "f-1", "blue.")
    assert all(right.name.startswith("blue.") for right in prefixed if right.kind not in ("--group", "--cluster"))
    without = [dataclasses.replace(right, name=right.name.removeprefix("blue.")) for right in prefixed]
    assert without == rights_of_script(tmp_path, "f-1")


def test_before_there_is_a_fleet_only_who_forms_it_gets_rights(tmp_path: Path) -> None:
    assert {right.principal for right in rights_of_script(tmp_path, "")} == {"User:spillway-topics"}


def test_the_script_says_what_it_needs() -> None:
    ended = subprocess.run(["sh", str(SCRIPT)], env={}, check=False, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "BOOTSTRAP: host:port of a broker" in ended.stderr


# ── A broker ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Formed, with the rights of the script."""
    folder = tmp_path_factory.mktemp("secured")
    server = make_secured_server(folder, session_port(count=PORTS_PER_NODE))
    try:
        stage = Stage("kafka", (server.prepare_program(),), server.is_ready, 60.0)
    except MissingTool as missing:
        pytest.skip(str(missing))
    with running_stages([stage], folder):
        assert server.security is not None
        unformed = SecuredKafka(server.bootstrap_servers, server.security)
        yield dataclasses.replace(unformed, fleet=asyncio.run(unformed.form_log(folder, FEW)))


def make_bus_of_role(kafka: SecuredKafka, role: str, **variables: str) -> KafkaBus:
    return KafkaBus(kafka.settings_of_role(role, **variables), kafka.fleet, f"test/{role}")


def topics_written_by(role: str) -> list[Topic]:
    return [topic for topic in TOPICS if role in topic.emitters]


def events_writable_by(service: str) -> list[Event]:
    """One event of each topic that is the service's alone, but its turn, which is taken."""
    own = [topic for topic in topics_written_by(service) if topic.emitters == (service,)]
    return [any_event_on(topic) for topic in own if topic != CLAIM_TOPIC_BY_SERVICE[service]]


async def read_to_the_end(opened: Bus, topics: list[Topic]) -> None:
    async with opened.follow_topics(topics) as feed:
        ends = await feed.end_offsets()
        async for batch in feed:
            if has_reached_ends(batch.positions, ends):
                return


@pytest.mark.kafka
@pytest.mark.parametrize("service", STANDBYS)
async def test_who_stands_by_takes_its_turn_writes_in_it_and_fences_the_one_before(
    kafka: SecuredKafka, service: str
) -> None:
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        make_bus_of_role(kafka, service) as one,
        make_bus_of_role(kafka, service) as two,
    ):
        async with one.join_standby_group(service, "a") as turn:
            old = await turn.wait_for_turn()
            await old.write_events(events_writable_by(service))
        async with two.join_standby_group(service, "b") as turn:
            new = await turn.wait_for_turn()
            assert new.turn_epoch > old.turn_epoch
            with pytest.raises(OutcomeUnknown):
                await old.write_events(events_writable_by(service))
            await new.write_events(events_writable_by(service))
        await two.publish(
            *(any_event_on(topic) for topic in (*topics_written_by(service), DEAD_LETTERS) if not topic.committed)
        )
        await read_to_the_end(two, [topic for topic in TOPICS if service in topic.readers])


@pytest.mark.kafka
@pytest.mark.parametrize("service", SHARERS)
async def test_who_shares_the_clusters_gets_them_claims_one_and_writes(kafka: SecuredKafka, service: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, service) as opened:
        async with opened.join_cluster_group(service, "a") as turns:
            while len((await anext(turns)).partitions) < FEW.partitions_cluster:
                pass  # All of them, in the end.
        (claim,) = await opened.publish(TurnTaken(service, "own-1", "a"))
        assert claim.topic == CLAIM_TOPIC_BY_SERVICE[service].name
        await opened.publish(*events_writable_by(service), any_event_on(DEAD_LETTERS))
        await read_to_the_end(opened, [topic for topic in TOPICS if service in topic.readers])


@pytest.mark.kafka
@pytest.mark.parametrize("role", [role for role in ROLES if role != "topics"])
async def test_nobody_writes_what_is_anothers(kafka: SecuredKafka, role: str) -> None:
    """Topic by topic, at once and with the topic named."""
    mine = {"publisher": {LOAD, BACKLOG}, "cli": set[Topic]()}.get(role, {*topics_written_by(role), DEAD_LETTERS})
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, role) as opened:
        for topic in TOPICS:
            if topic in mine:
                continue
            with pytest.raises(NotAllowed, match=f"user 'spillway-{role}' may not .*: see deploy/kafka/acls.sh"):
                await opened.publish(any_event_on(topic))


@pytest.mark.kafka
@pytest.mark.parametrize("role", [*SERVICES, "publisher"])
async def test_nobody_reads_what_is_not_for_it(kafka: SecuredKafka, role: str, tmp_path: Path) -> None:
    """Every topic that the role has no right to read, side by side; each refusal names the topic."""
    readable = names_allowed_to_role(rights_of_script(tmp_path, kafka.fleet), role, "Read")
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, role) as opened:

        async def assert_read_is_refused(topic: Topic) -> None:
            with pytest.raises(NotAllowed, match=f"'spillway-{role}' may not read topic {topic.name}:"):
                await read_to_the_end(opened, [topic])

        others = [topic for topic in TOPICS if topic.name not in readable]
        assert others
        await asyncio.gather(*map(assert_read_is_refused, others))


@pytest.mark.kafka
@pytest.mark.parametrize("role", [role for role in ROLES if role != "topics"])
async def test_nobody_takes_anothers_turn(kafka: SecuredKafka, role: str) -> None:
    """Neither a turn of a service that stands by, nor one at the clusters, nor the writer that fences."""
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        make_bus_of_role(kafka, role, SPILLWAY_KAFKA_START_SECONDS="3") as opened,
    ):

        async def assert_standing_by_is_refused(service: str) -> None:
            with pytest.raises(NotAllowed, match=f"may not use group {kafka.fleet}.{service}.standby:"):
                async with opened.join_standby_group(service, "a") as turn:
                    await turn.wait_for_turn()

        async def assert_sharing_is_refused(service: str) -> None:
            with pytest.raises(NotAllowed, match=f"may not use group {kafka.fleet}.{service}:"):
                async with opened.join_cluster_group(service, "a") as turns:
                    await anext(turns)

        async def assert_fencing_is_refused(service: str) -> None:
            with pytest.raises(NotAllowed, match=f"may not use transactional id {kafka.fleet}.{service}:"):
                await opened.start_producer(transactional_id=f"{kafka.fleet}.{service}")

        tries = [
            try_of(service)
            for service in STANDBYS
            if service != role
            for try_of in (assert_standing_by_is_refused, assert_fencing_is_refused)
        ]
        await asyncio.gather(*tries, *(assert_sharing_is_refused(service) for service in SHARERS if service != role))


@pytest.mark.kafka
async def test_who_may_publish_load_writes_no_placement_and_no_recall(kafka: SecuredKafka) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, "publisher") as publisher:
        await publisher.publish(any_event_on(LOAD), any_event_on(BACKLOG))
        for topic in (PLACEMENTS, RECALLS):
            with pytest.raises(NotAllowed, match=f"'spillway-publisher' may not write topic {topic.name}"):
                await publisher.publish(any_event_on(topic))
        await publisher.publish(any_event_on(LOAD))
    async with make_bus_of_role(kafka, "cli") as reader:
        loads = [record for record in await read_to_current_end(reader, [LOAD]) if record.event == any_event_on(LOAD)]
        assert len(loads) >= 2


@pytest.mark.kafka
async def test_a_writer_of_another_service_cannot_be_fenced(kafka: SecuredKafka) -> None:
    """Whoever could open it would end the planner's turn without writing anything."""
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, "hpa") as opened:
        with pytest.raises(NotAllowed, match=f"'spillway-hpa' may not use transactional id {kafka.fleet}.planner"):
            await opened.start_producer(transactional_id=f"{kafka.fleet}.planner")


@pytest.mark.kafka
async def test_a_transaction_with_anothers_topic_in_it_says_so_and_writes_nothing(kafka: SecuredKafka) -> None:
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        make_bus_of_role(kafka, "descheduler") as opened,
        opened.join_standby_group("descheduler", "a") as turn,
    ):
        writer = await turn.wait_for_turn()
        recalls = len(await read_to_current_end(opened, [RECALLS]))
        with pytest.raises(NotAllowed, match=f"may not write topic {PLACEMENTS.name}"):
            await writer.write_events([any_event_on(RECALLS), any_event_on(PLACEMENTS)])
        assert len(await read_to_current_end(opened, [RECALLS])) == recalls


@pytest.mark.kafka
async def test_who_may_not_read_a_topic_is_told_and_does_not_wait_for_ever(kafka: SecuredKafka) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, "publisher") as opened:
        with pytest.raises(NotAllowed, match=f"'spillway-publisher' may not read topic {CLUSTERS.name}"):
            await read_to_the_end(opened, [CLUSTERS])


@pytest.mark.kafka
async def test_a_group_of_another_service_cannot_be_joined(kafka: SecuredKafka) -> None:
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        make_bus_of_role(kafka, "publisher", SPILLWAY_KAFKA_START_SECONDS="3") as opened,
    ):
        with pytest.raises(NotAllowed, match=f"'spillway-publisher' may not use group {kafka.fleet}.snapshot"):
            async with opened.join_cluster_group("snapshot", "a") as turns:
                await anext(turns)


@pytest.mark.kafka
@pytest.mark.timeout(400)
async def test_kafkas_own_tool_takes_the_script(kafka: SecuredKafka, tmp_path: Path) -> None:
    """Call by call, some thirty; then the broker has what was asked for, and nothing else, under that prefix."""
    if os.environ.get("SPILLWAY_SECURED") != "1":
        pytest.skip("a Java virtual machine for each call: make test-secured, or SPILLWAY_SECURED=1")
    tool = tmp_path / "kafka-acls.sh"
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(kafka_tool_command("org.apache.kafka.tools.AclCommand"))} "$@"\n')
    tool.chmod(0o700)
    fleet, prefix = "tool-1", "tool."
    variables = {
        "BOOTSTRAP": kafka.bootstrap,
        "COMMAND_CONFIG": str(kafka.security.write_command_config()),
        "FLEET": fleet,
        "PREFIX": prefix,
        "KAFKA_ACLS": str(tool),
    }
    run = partial(subprocess.run, ["sh", str(SCRIPT)], env=os.environ | variables, check=False, capture_output=True)
    ended = await asyncio.to_thread(run)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    theirs = [
        right
        for right in await rights_at_broker(kafka.administrator_access)
        if right.name.startswith((prefix, fleet, CLUSTER))
    ]
    assert sorted(theirs) == sorted(rights_of_script(tmp_path, fleet, prefix))


# ── Who is not let in ───────────────────────────────────────────────────────────────────────────────────────────────


def write_other_password(folder: Path) -> Path:
    file = folder / "password"
    file.write_text(OTHER_WORD)
    return file


async def text_of_refused_start(settings: KafkaSettings) -> str:
    """What the start says when it is given up."""
    with pytest.raises(LogClosed) as closed:
        async with asyncio.timeout(DEADLINE_SECONDS), KafkaBus(settings, "", "test"):
            pass
    return str(closed.value)


@pytest.mark.kafka
async def test_who_is_not_let_in_is_told_why_in_bounded_time(
    kafka: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """All of them side by side, since each tries for as long; no password is shown anywhere."""
    settings = kafka.settings_of_role("planner", SPILLWAY_KAFKA_START_SECONDS=str(START_SECONDS))
    foreign = Authority(tmp_path / "foreign")
    certificate, key = foreign.issue_certificate("spillway-planner")
    nothing = {"sasl_username": "", "sasl_password_file": ""}
    refused: dict[str, tuple[dict[str, Any], str]] = {
        "another password": (
            {"sasl_password_file": str(write_other_password(tmp_path))},
            "lets user 'spillway-planner' not in: Authentication failed",
        ),
        "an unknown user": (
            {"sasl_username": "spillway-nobody"},
            "lets user 'spillway-nobody' not in: Authentication failed",
        ),
        "another mechanism": ({"sasl_mechanism": "PLAIN"}, "UNSUPPORTED_SASL_MECHANISM, asked for SASL_SSL and PLAIN"),
        "another CA": ({"ssl_ca_file": str(foreign.certificate)}, "its certificate is not trusted: "),
        "the system's CAs": ({"ssl_ca_file": ""}, "its certificate is not trusted: "),
        "a certificate of another CA": (
            {"ssl_certificate_file": str(certificate), "ssl_key_file": str(key)},
            "is SASL_SSL what that port speaks?",
        ),
        "no TLS": (
            {"security_protocol": "PLAINTEXT", "ssl_ca_file": "", **nothing},
            "is PLAINTEXT what that port speaks?",
        ),
        "TLS, and nobody": ({"security_protocol": "SSL", **nothing}, "is SSL what that port speaks?"),
    }
    tries = (text_of_refused_start(dataclasses.replace(settings, **change)) for change, _ in refused.values())
    told = dict(zip(refused, await asyncio.gather(*tries), strict=True))
    assert {name: said for name, said in told.items() if refused[name][1] not in said} == {}
    assert all(f"(tried for {START_SECONDS} s)" in said for said in told.values())
    shown = "".join((*told.values(), *capsys.readouterr(), caplog.text))
    assert "lets user 'spillway-nobody' not in" in shown
    word = kafka.security.password_file("spillway-planner").read_text().strip()
    assert [one for one in (word, OTHER_WORD) if one in shown] == []


@pytest.mark.kafka
async def test_a_certificate_of_our_own_is_shown_where_it_is_asked_for(kafka: SecuredKafka) -> None:
    certificate, key = kafka.security.authority.issue_certificate("spillway-planner")
    variables = {"SPILLWAY_KAFKA_SSL_CERTIFICATE_FILE": str(certificate), "SPILLWAY_KAFKA_SSL_KEY_FILE": str(key)}
    async with asyncio.timeout(DEADLINE_SECONDS), make_bus_of_role(kafka, "planner", **variables) as opened:
        assert opened.fleet_id == kafka.fleet


@pytest.mark.kafka
def test_the_command_is_a_user_too(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """events as `cli`; topics as `topics`; with another password one line says why."""
    monkeypatch.setattr(log_commands, "START_SECONDS", START_SECONDS)
    reading = CliRunner(env=kafka.variables_of_role("cli")).invoke(
        app, ["events", "load", "--from-start", "--no-follow"]
    )
    assert reading.exit_code == 0, reading.stderr
    examined = CliRunner(env=kafka.variables_of_role("cli")).invoke(app, ["doctor", "-o", "json"])
    found = {check["name"]: check for check in json.loads(examined.stdout)}
    assert found["topics"]["outcome"] == found["cleanup and sizes"]["outcome"] == "ok"
    assert not [name for name, check in found.items() if name.startswith("disk") and check["outcome"] == "skipped"]
    few = ["topics", "--partitions-cluster", "2", "--partitions-workload", "2"]
    forming = CliRunner(env=kafka.variables_of_role("topics")).invoke(app, few)
    assert (forming.exit_code, forming.stdout) == (0, f"{kafka.fleet}\n"), forming.stderr
    wrong = {"SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(write_other_password(tmp_path))}
    for role, command in (("cli", ["events", "load", "--no-follow"]), ("topics", few)):
        refused = CliRunner(env=kafka.variables_of_role(role) | wrong).invoke(app, command)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert f"lets user 'spillway-{role}' not in: Authentication failed" in refused.stderr
        assert OTHER_WORD not in refused.stderr
    job = [sys.executable, "-m", "spillway.kafka.topics"]
    ended = subprocess.run(
        job, env=os.environ | kafka.variables_of_role("topics") | wrong, check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "lets user 'spillway-topics' not in: Authentication failed" in ended.stderr.splitlines()[-1]


@pytest.mark.kafka
async def test_other_peoples_kafka_is_asked_by_the_same_proof(kafka: SecuredKafka, tmp_path: Path) -> None:
    """hpa asks the lag of groups; whoever it is there needs Describe on the group, which nobody gave it here."""
    connection = KafkaConnection(
        (kafka.bootstrap,),
        "SASL_SSL",
        "SCRAM-SHA-512",
        "spillway-hpa",
        str(kafka.security.password_file("spillway-hpa")),
        str(kafka.security.authority.certificate),
    )
    for changed, why in (
        ({}, "GroupAuthorizationFailedError"),
        ({"password_file": str(write_other_password(tmp_path))}, "lets user 'spillway-hpa' not in"),
    ):
        door = KafkaLag(msgspec.structs.replace(connection, **changed), LagSettings(answer_seconds=20.0))
        with pytest.raises(LagUnknown, match=why):
            await door.backlog("somebodys", LOAD.name)
        await door.close()
