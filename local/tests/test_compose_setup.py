"""The files that compose's setup makes once: each service has its own, and what a person added stays."""

import hashlib
import json
import ssl
from itertools import combinations
from pathlib import Path

import pytest

from spillway_local.compose_setup import COMMAND, REACH_MEMBERS, RPC_HOSTS, SERVICES, Files, write_files
from spillway_local.fleet_plan import FLEET

KUBECONFIGS = {f"credentials/{member.name}.kubeconfig" for member in FLEET}
LET_IN = {"grpc.crt", "grpc.key", "callers.json"}
WANTED = {
    "snapshot": KUBECONFIGS,
    "planner": LET_IN,
    "propagator": KUBECONFIGS,
    "hpa": LET_IN | {"connections.yaml"},
    "vk-bridge": KUBECONFIGS,
    "descheduler": LET_IN,
    COMMAND: {"config.toml", "ca.crt"} | KUBECONFIGS,
}


def files_by_service(folder: Path) -> dict[str, set[str]]:
    """By service, or the command: its files."""
    return {
        own.name: {str(file.relative_to(own)) for file in own.rglob("*") if file.is_file()} for own in folder.iterdir()
    }


def test_each_service_has_what_it_reads_and_nothing_else(tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092")
    assert files_by_service(tmp_path) == WANTED
    assert set(WANTED) == {*SERVICES, COMMAND}
    assert set(REACH_MEMBERS).isdisjoint(RPC_HOSTS)


@pytest.mark.parametrize(("one", "other"), list(combinations(RPC_HOSTS, 2)))
def test_no_service_can_show_anothers_certificate(tmp_path: Path, one: str, other: str) -> None:
    write_files(tmp_path, "kafka:9092", ())
    assert Files(tmp_path / one).key.read_text() != Files(tmp_path / other).key.read_text()


def test_the_command_knows_all_services_by_their_certificates(tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092", ())
    context = ssl.create_default_context(cafile=str(Files(tmp_path / COMMAND).authorities))
    known = [dict(part for entry in found["subject"] for part in entry) for found in context.get_ca_certs()]
    assert sorted(one["commonName"] for one in known) == sorted(f"spillway-{name}" for name in RPC_HOSTS)


def test_only_the_commands_folder_has_the_token(tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092", ())
    config = Files(tmp_path / COMMAND).config.read_text()
    (token,) = [line.split('"')[1] for line in config.splitlines() if line.startswith("token")]
    found = [file for file in tmp_path.rglob("*") if file.is_file() and token in file.read_text()]
    assert found == [Files(tmp_path / COMMAND).config]
    for name in RPC_HOSTS:
        (ours,) = json.loads(Files(tmp_path / name).callers.read_text())["callers"]
        assert ours["token_sha256"] == hashlib.sha256(token.encode()).hexdigest()
        assert ours["verbs"] == ["*"]


def test_a_second_run_keeps_the_token_and_what_a_person_added(tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092", ())
    planner = Files(tmp_path / "planner")
    (ours,) = json.loads(planner.callers.read_text())["callers"]
    planner.callers.write_text(json.dumps({"callers": [ours, {"name": "alice", "verbs": ["read"]}]}))
    before = {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    write_files(tmp_path, "kafka:9092", ())
    assert {file: file.read_text() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_service_whose_volume_was_removed_lets_the_same_token_in_again(tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092", ())
    hpa = Files(tmp_path / "hpa")
    callers = hpa.callers.read_text()
    for file in (hpa.callers, hpa.certificate, hpa.key, hpa.connections):
        file.unlink()
    write_files(tmp_path, "kafka:9092", ())
    assert hpa.callers.read_text() == callers
    assert hpa.certificate.read_text() in Files(tmp_path / COMMAND).authorities.read_text()
