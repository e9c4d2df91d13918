"""What `docker compose up` does once before the services start: secrets, nodes of the members, topics, a fleet."""

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from spillway.kafka.access import KafkaAccess
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway_local.fleet_plan import FLEET, MemberPlan
from spillway_local.member_credentials import MemberAccess, ensure_certificate, write_kubeconfig, write_secret
from spillway_local.member_nodes import create_nodes

GRPC_HOSTS = ("planner", "hpa", "descheduler", "localhost")
MEMBER_PORT = 8080
"""Where the kwok image serves an API without authentication: inside the compose network alone."""
SERVICES = ("snapshot", "planner", "propagator", "hpa", "vk-bridge", "descheduler")
HEALTH_PORT = 18080
REDIS_URL = "redis://redis:6379/0"
WAIT_SECONDS = 180.0
_POLL_SECONDS = 0.5
CALLER = "compose"
EVERY_VERB = {"verbs": ["*"]}


@dataclass(frozen=True, slots=True)
class Files:
    """What the services and the command read. Made once, kept in the volume."""

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
        """Of the command `spillway`."""
        return self.folder / "config.toml"

    @property
    def connections(self) -> Path:
        return self.folder / "connections.yaml"

    @property
    def credentials(self) -> Path:
        return self.folder / "credentials"


def write_files(files: Files, bootstrap: str, fleet: Sequence[MemberPlan] = FLEET) -> None:
    """Certificate, token and kubeconfigs; those of a former run are kept."""
    files.credentials.mkdir(parents=True, exist_ok=True)
    ensure_certificate(files.certificate, files.key, "spillway", hosts=GRPC_HOSTS)
    if not files.config.exists():
        token = secrets.token_urlsafe(32)
        entry = {"name": CALLER, "token_sha256": hashlib.sha256(token.encode()).hexdigest()} | EVERY_VERB
        write_secret(files.callers, json.dumps({"callers": [entry]}) + "\n")
        write_secret(files.config, _config(files, token, bootstrap))
    else:
        _give_verbs(files.callers)
    files.connections.write_text(json.dumps({"kafka": {"compose": {"bootstrapServers": bootstrap.split(",")}}}) + "\n")
    for member in fleet:
        write_kubeconfig(files.credentials / f"{member.name}.kubeconfig", member.name, _access(member))


def _give_verbs(callers: Path) -> None:
    """To our own entry of an older version: no entry may do anything by leaving its verbs out any more."""
    known = json.loads(callers.read_text())
    given = [EVERY_VERB | entry if entry["name"] == CALLER else entry for entry in known["callers"]]
    if given != known["callers"]:
        write_secret(callers, json.dumps(known | {"callers": given}) + "\n")


def _config(files: Files, token: str, bootstrap: str) -> str:
    return (
        'endpoints = ["planner:7400"]\n'
        'scaling_endpoints = ["hpa:7410"]\n'
        'lending_endpoints = ["descheduler:7420"]\n'
        f'token = "{token}"\nca = "{files.certificate}"\nkafka = "{bootstrap}"\n'
        f'redis = "{REDIS_URL}"\nhealth = {json.dumps([f"{name}={name}:{HEALTH_PORT}" for name in SERVICES])}\n'
        f'credentials = "{files.credentials}"\n'
    )


def _access(member: MemberPlan) -> MemberAccess:
    return MemberAccess(f"http://{member.name}:{MEMBER_PORT}", "", "")


async def prepare_member(member: MemberPlan, wait_seconds: float) -> None:
    """Its nodes, once its API answers. Raises TimeoutError naming it."""
    access, deadline = _access(member), time.monotonic() + wait_seconds
    while not await _answers(access):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{member.name}: {access.server} did not answer within {wait_seconds:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)
    await create_nodes(access, member.nodes, wait_seconds)
    print(f"{member.name}: {sum(spec.count for spec in member.nodes)} nodes are Ready", flush=True)


async def _answers(access: MemberAccess) -> bool:
    timeout = aiohttp.ClientTimeout(total=5.0)
    try:
        async with (
            aiohttp.ClientSession(access.server, timeout=timeout) as session,
            session.get("/readyz", headers=access.headers) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError):
        return False


async def _topics(bootstrap: str, wait_seconds: float) -> None:
    settings = TopicSettings(ensure_seconds=wait_seconds)
    fleet = await ensure_topics(KafkaAccess(bootstrap), settings, "compose", lambda text: print(text, flush=True))
    print(f"topics are there; the fleet is {fleet}", flush=True)


async def _prepare(bootstrap: str, wait_seconds: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_topics(bootstrap, wait_seconds))
        for member in FLEET:
            tasks.create_task(prepare_member(member, wait_seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway_local.compose_setup", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/lib/spillway"), help="of what is made")
    parser.add_argument("--bootstrap", default=os.environ.get("SPILLWAY_KAFKA_BOOTSTRAP", "kafka:9092"))
    parser.add_argument("--wait-seconds", type=float, default=WAIT_SECONDS, help="for the members, and for the topics")
    asked = parser.parse_args()
    write_files(Files(asked.folder), asked.bootstrap)
    try:
        asyncio.run(_prepare(asked.bootstrap, asked.wait_seconds))
    except* (TimeoutError, OSError) as troubles:
        sys.exit("\n".join(str(trouble) or repr(trouble) for trouble in troubles.exceptions))


if __name__ == "__main__":
    main()
