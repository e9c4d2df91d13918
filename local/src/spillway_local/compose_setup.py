"""Prepares `docker compose up` once before the services start: secrets, nodes of the members, topics, a fleet."""

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import ssl
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from spillway.http_client import open_session
from spillway.kafka.access import KafkaAccess
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway_local.fleet_plan import FLEET, MemberPlan
from spillway_local.member_credentials import MemberAccess, ensure_certificate, write_kubeconfig, write_secret
from spillway_local.member_nodes import create_nodes

MEMBER_PORT = 8080
"""The port of the API in the kwok image. The API asks for no credentials, and only its callers share its network."""
SERVICES = ("snapshot", "planner", "propagator", "hpa", "vk-bridge", "descheduler")
REACH_MEMBERS = ("snapshot", "propagator", "vk-bridge")
RPC_HOSTS = {"planner": "planner-grpc", "hpa": "hpa", "descheduler": "descheduler"}
"""The host name of each service with gRPC: clients call it by this name, and it listens there."""
COMMAND = "command"
HEALTH_PORT = 18080
REDIS_URL = "redis://redis:6379/0"
WAIT_SECONDS = 180.0
_POLL_SECONDS = 0.5
CALLER = "compose"
EVERY_VERB = {"verbs": ["*"]}
READ_FROM = Path("/var/lib/spillway")
"""The path at which a service, or the command, has its own volume."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that one service, or the command, reads. They are in a volume that no other service mounts."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "grpc.crt"

    @property
    def key(self) -> Path:
        return self.folder / "grpc.key"

    @property
    def callers(self) -> Path:
        return self.folder / "callers.json"

    @property
    def config(self) -> Path:
        """Returns the config file of the command `spillway`, with its token."""
        return self.folder / "config.toml"

    @property
    def authorities(self) -> Path:
        """Returns the CA file of the command: the certificates of all services, because each is its own authority."""
        return self.folder / "ca.crt"

    @property
    def connections(self) -> Path:
        """Returns the connections file of hpa."""
        return self.folder / "connections.yaml"

    @property
    def credentials(self) -> Path:
        return self.folder / "credentials"


def write_files(folder: Path, bootstrap: str, fleet: Sequence[MemberPlan] = FLEET) -> None:
    """Writes certificates, token and kubeconfigs below folder/SERVICE and folder/command.

    Certificates, the token and callers of a former run are kept.
    """
    command = Files(folder / COMMAND)
    if not command.config.exists():
        write_secret(command.config, _config_text(secrets.token_urlsafe(32), bootstrap))
    token: str = tomllib.loads(command.config.read_text())["token"]
    for name in RPC_HOSTS:
        _write_certificate_and_callers(Files(folder / name), name, token)
    command.authorities.write_text("".join(Files(folder / name).certificate.read_text() for name in RPC_HOSTS))
    connections = {"kafka": {"compose": {"bootstrapServers": bootstrap.split(",")}}}
    Files(folder / "hpa").connections.write_text(json.dumps(connections) + "\n")
    for name in (*REACH_MEMBERS, COMMAND):
        for member in fleet:
            file = Files(folder / name).credentials / f"{member.name}.kubeconfig"
            write_kubeconfig(file, member.name, _member_access(member))


def _write_certificate_and_callers(files: Files, service: str, token: str) -> None:
    """Creates a service's certificate, and lets the owner of this token call it. Callers added by hand are kept."""
    # Each service needs a name of its own, because a verifier uses the first of several authorities of the same name.
    ensure_certificate(files.certificate, files.key, f"spillway-{service}", hosts=(RPC_HOSTS[service], "localhost"))
    if not files.callers.exists():
        entry = {"name": CALLER, "token_sha256": hashlib.sha256(token.encode()).hexdigest()} | EVERY_VERB
        write_secret(files.callers, json.dumps({"callers": [entry]}) + "\n")


def _config_text(token: str, bootstrap: str) -> str:
    """Returns the command's config, with paths as in its own volume."""
    files = Files(READ_FROM)
    return (
        f'endpoints = ["{RPC_HOSTS["planner"]}:7400"]\n'
        f'scaling_endpoints = ["{RPC_HOSTS["hpa"]}:7410"]\n'
        f'lending_endpoints = ["{RPC_HOSTS["descheduler"]}:7420"]\n'
        f'token = "{token}"\nca = "{files.authorities}"\nkafka = "{bootstrap}"\n'
        f'redis = "{REDIS_URL}"\nhealth = {json.dumps([f"{name}={name}:{HEALTH_PORT}" for name in SERVICES])}\n'
        f'credentials = "{files.credentials}"\n'
    )


def _member_access(member: MemberPlan) -> MemberAccess:
    return MemberAccess(f"http://{member.name}:{MEMBER_PORT}", "", "")


async def prepare_member(member: MemberPlan, wait_seconds: float) -> None:
    """Creates a member's nodes, once its API answers. Raises TimeoutError with its name."""
    access, deadline = _member_access(member), time.monotonic() + wait_seconds
    while not await _is_api_ready(access):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{member.name}: {access.server} did not answer within {wait_seconds:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)
    await create_nodes(access, member.nodes, wait_seconds)
    print(f"{member.name}: {sum(spec.count for spec in member.nodes)} nodes are Ready", flush=True)


async def _is_api_ready(access: MemberAccess) -> bool:
    timeout = aiohttp.ClientTimeout(total=5.0)
    try:
        async with (
            open_session(1, timeout, base_url=access.server) as session,
            session.get("/readyz", headers=access.headers) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError):
        return False


async def _create_topics(bootstrap: str, wait_seconds: float) -> None:
    settings = TopicSettings(ensure_seconds=wait_seconds)
    fleet = await ensure_topics(KafkaAccess(bootstrap), settings, "compose", lambda text: print(text, flush=True))
    print(f"topics are there; the fleet is {fleet}", flush=True)


async def _prepare_topics_and_members(bootstrap: str, wait_seconds: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_create_topics(bootstrap, wait_seconds))
        for member in FLEET:
            tasks.create_task(prepare_member(member, wait_seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway_local.compose_setup", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/setup"), help="of the volumes")
    parser.add_argument("--bootstrap", default=os.environ.get("SPILLWAY_KAFKA_BOOTSTRAP", "kafka:9092"))
    parser.add_argument("--wait-seconds", type=float, default=WAIT_SECONDS, help="for members; again for topics")
    asked = parser.parse_args()
    write_files(asked.folder, asked.bootstrap)
    try:
        asyncio.run(_prepare_topics_and_members(asked.bootstrap, asked.wait_seconds))
    except* (TimeoutError, OSError) as troubles:
        sys.exit("\n".join(str(trouble) or repr(trouble) for trouble in troubles.exceptions))


if __name__ == "__main__":
    main()
