"""Watches the members independently: the objects that exist and those that were removed, no matter by whom.

It uses none of the platform's own reading code, so that an error there cannot hide itself here.
"""

import asyncio
import base64
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from .ledger import Finding, Place, Seen, Stopped

NAMESPACE = "chaos"
VERSION = "spillway.io/placement"
FLEET_LABEL = "spillway.io/fleet"
_PAUSE_SECONDS = 0.2
_WATCH_SECONDS = 300
_ANSWER_SECONDS = 10.0
_LINE_BYTES_MAX = 4 << 20
_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Door:
    """The access to a member. It bypasses any fault between the member and the platform."""

    server: str
    token: str
    ca_pem: str = ""

    def ssl_context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cadata=self.ca_pem) if self.ca_pem else None


def read_door(kubeconfig: Path) -> Door:
    content = json.loads(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    ca_pem = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    return Door(cluster["server"], user["token"], ca_pem)


@dataclass(frozen=True, slots=True)
class Kept:
    """The properties of an object that must not change."""

    name: str
    replicas: int
    version: tuple[int, int]


@dataclass(slots=True)
class MemberFollower:
    """Follows one member's objects of some kinds by its own watches.

    paths: the path of the list, by kind. known: objects by kind and uid. fresh: True while the watch works, by kind.
    """

    name: str
    door: Door
    paths: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    fresh: dict[str, bool] = field(default_factory=dict)

    async def run(self) -> None:
        """Follows until cancelled. After an error it lists again; objects that are missing then count as removed."""
        async with open_session(self.door) as session, asyncio.TaskGroup() as tasks:
            for kind, path in self.paths.items():
                tasks.create_task(self._follow_kind(session, kind, path))

    def is_fresh(self) -> bool:
        return all(self.fresh.get(kind) for kind in self.paths)

    async def _follow_kind(self, session: aiohttp.ClientSession, kind: str, path: str) -> None:
        while True:
            with suppress(*_TROUBLE):
                version = await self._list_objects(session, kind, path)
                self.fresh[kind] = True
                async for event in _watch_events(session, path, version):
                    self._apply_event(kind, event)
            self.fresh[kind] = False
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _list_objects(self, session: aiohttp.ClientSession, kind: str, path: str) -> str:
        async with asyncio.timeout(_ANSWER_SECONDS), session.get(path) as answer:
            answer.raise_for_status()
            listed = await answer.json()
        known = self.known.setdefault(kind, {})
        there = {entry["metadata"]["uid"]: entry for entry in listed["items"]}
        for uid in known.keys() - there.keys():
            self._note_removal(kind, known.pop(uid))
        for entry in there.values():
            self._note_object(kind, entry)
        return str(listed["metadata"]["resourceVersion"])

    def _apply_event(self, kind: str, event: Mapping[str, Any]) -> None:
        entry = event["object"]
        if event["type"] in ("ADDED", "MODIFIED"):
            self._note_object(kind, entry)
        elif event["type"] == "DELETED":
            known = self.known.setdefault(kind, {}).pop(entry["metadata"]["uid"], None)
            self._note_removal(kind, known or entry)
        elif event["type"] == "ERROR":
            raise ValueError(f"the watch of {kind} ended: {entry.get('message')}")

    def _note_object(self, kind: str, entry: dict[str, Any]) -> None:
        self.known.setdefault(kind, {})[entry["metadata"]["uid"]] = entry

    def _note_removal(self, kind: str, entry: dict[str, Any]) -> None:
        pass


def _list_path_by_kind() -> dict[str, str]:
    roots = {"deployments": "/apis/apps/v1", "pods": "/api/v1"}
    return {kind: f"{root}/namespaces/{NAMESPACE}/{kind}" for kind, root in roots.items()}


@dataclass(slots=True)
class MemberAudit(MemberFollower):
    """The audit of one member. went_objects, went_pods: removed objects and running pods by workload since the
    start."""

    paths: Mapping[str, str] = field(default_factory=_list_path_by_kind)
    went_objects: Counter[str] = field(default_factory=Counter)
    went_pods: Counter[str] = field(default_factory=Counter)
    went_back: list[Finding] = field(default_factory=list)

    @property
    def deployments_by_uid(self) -> Mapping[str, dict[str, Any]]:
        return self.known.get("deployments", {})

    @property
    def pods_by_uid(self) -> Mapping[str, dict[str, Any]]:
        return self.known.get("pods", {})

    def _note_object(self, kind: str, entry: dict[str, Any]) -> None:
        before = self.known.get(kind, {}).get(entry["metadata"]["uid"])
        MemberFollower._note_object(self, kind, entry)
        if kind == "pods":
            # A pod that once ran counts as running when it goes, whatever its last phase was.
            entry["ran"] = bool(before and before["ran"]) or is_pod_running(entry)
        elif before is not None and placement_version_of(entry) < placement_version_of(before):
            versions = f"from {placement_version_of(before)} to {placement_version_of(entry)}"
            text = f"{entry['metadata']['name']} in {self.name}: {versions}"
            self.went_back.append(Finding("contradictory", f"the version on an object went back: {text}"))

    def _note_removal(self, kind: str, entry: dict[str, Any]) -> None:
        if kind == "deployments":
            self.went_objects[entry["metadata"]["name"]] += 1
        elif entry.get("ran"):
            self.went_pods[_workload_of_pod(entry)] += 1

    def seen_by_workload(self) -> dict[str, Seen]:
        """Returns everything that exists now, by workload."""
        specs: dict[str, list[int]] = {}
        running, others = Counter[str](), Counter[str]()
        for entry in self.deployments_by_uid.values():
            specs.setdefault(entry["metadata"]["name"], []).append(int(entry["spec"]["replicas"]))
        for pod in self.pods_by_uid.values():
            (running if is_pod_running(pod) else others)[_workload_of_pod(pod)] += 1
        names = specs.keys() | running.keys() | others.keys()
        return {name: Seen(tuple(specs.get(name, ())), running[name], others[name]) for name in names}


@dataclass(slots=True)
class Audit:
    """The audits of all members of a fleet."""

    members: dict[str, MemberAudit]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for member in self.members.values():
                tasks.create_task(member.run())

    def forget_removals(self) -> None:
        """Forgets all removals so far."""
        for member in self.members.values():
            member.went_objects.clear()
            member.went_pods.clear()
            member.went_back.clear()

    def objects_by_cluster_and_uid(self) -> dict[tuple[str, str], Kept]:
        """Returns the present objects by (cluster, uid)."""
        return {
            (name, uid): Kept(entry["metadata"]["name"], int(entry["spec"]["replicas"]), placement_version_of(entry))
            for name, member in self.members.items()
            for uid, entry in member.deployments_by_uid.items()
        }

    def is_fresh(self) -> bool:
        return all(member.is_fresh() for member in self.members.values())

    def seen_by_place(self) -> dict[Place, Seen]:
        return {
            (name, app): seen
            for name, member in self.members.items()
            for app, seen in member.seen_by_workload().items()
        }

    def stopped_by_place(self) -> dict[Place, Stopped]:
        return {
            (name, app): Stopped(member.went_objects[app], member.went_pods[app])
            for name, member in self.members.items()
            for app in member.went_objects.keys() | member.went_pods.keys()
        }

    def take_contradictions(self) -> list[Finding]:
        found: list[Finding] = []
        for member in self.members.values():
            found += member.went_back
            member.went_back = []
        return found


def placement_version_of(entry: Mapping[str, Any]) -> tuple[int, int]:
    """Returns (epoch, sequence) of the placement that an object's annotation names; (-1, -1) without one."""
    epoch, _, sequence = entry["metadata"].get("annotations", {}).get(VERSION, "").partition(".")
    return (int(epoch), int(sequence)) if epoch.isdigit() and sequence.isdigit() else (-1, -1)


@asynccontextmanager
async def open_session(door: Door) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=door.ssl_context() or True)
    headers = {"Authorization": f"Bearer {door.token}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_SECONDS)
    async with aiohttp.ClientSession(
        door.server, connector=connector, headers=headers, timeout=timeout, read_bufsize=_LINE_BYTES_MAX
    ) as session:
        yield session


async def _watch_events(session: aiohttp.ClientSession, path: str, version: str) -> AsyncIterator[dict[str, Any]]:
    """Yields events until the server ends the watch. Splits lines itself, since they may exceed a stream reader's
    limit."""
    params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
    async with session.get(path, params=params) as answer:
        answer.raise_for_status()
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield json.loads(line)


def is_pod_running(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _workload_of_pod(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get("app", pod["metadata"]["name"]))
