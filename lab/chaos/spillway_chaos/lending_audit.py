"""Watches nodes and pods of owners and their pool by streams of its own, and checks the loans at each change."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from spillway.lending_marks import LENDING, LENT_CLUSTER, POOL_UID, virtual_node_name

from .audit import Door, MemberFollower, is_pod_running, open_session
from .ledger import Finding
from .lending_ledger import OWNED, LendingSeen, Node, PodSeen, find_doubled_pods, nodes_open_and_owned

LENDABLE = "batch"
"""The label of the nodes for lending, and the key of their taint, which keeps other pods away."""
OWN_NAMESPACE, OFFLINE_NAMESPACE = "people", "offline"
_PATHS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods"}
_ENDED = ("Succeeded", "Failed")
_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError)
Entry = Mapping[str, Any]


@dataclass(slots=True)
class LendingMember(MemberFollower):
    """Follows one member for the lending audit. changed: the event that is set at every change."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def _note_object(self, kind: str, entry: dict[str, Any]) -> None:
        MemberFollower._note_object(self, kind, entry)
        self.changed.set()

    def _note_removal(self, kind: str, entry: dict[str, Any]) -> None:
        self.changed.set()


class LendingAudit:
    """The audit of lending between owners and one pool."""

    def __init__(self, doors: Mapping[str, Door], owners: tuple[str, ...], pool: str) -> None:
        self._changed = asyncio.Event()
        self._members = {
            name: LendingMember(name, doors[name], _PATHS, changed=self._changed) for name in (*owners, pool)
        }
        self._owners = owners
        self._pool = pool
        self._said: set[str] = set()
        self._found: list[Finding] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for member in self._members.values():
                tasks.create_task(member.run())
            tasks.create_task(self._look_at_changes())

    def take_findings(self) -> list[Finding]:
        found, self._found = self._found, []
        return found

    def is_fresh(self) -> bool:
        return all(member.is_fresh() for member in self._members.values())

    def lending_seen(self) -> LendingSeen:
        return LendingSeen(
            states={
                (owner, node["metadata"]["name"]): _loan_state_of_node(node)
                for owner in self._owners
                for node in self._objects_of_member(owner, "nodes")
                if LENDABLE in node["metadata"].get("labels", {})
            },
            opened={node["metadata"]["name"]: _is_node_open(node) for node in self._virtual_nodes()},
            pooled=tuple(map(_make_pod_seen, self._pods_in_namespace(self._pool, OFFLINE_NAMESPACE))),
            real={
                owner: tuple(_make_pod_seen(pod) for pod in self._objects_of_member(owner, "pods") if _is_real_pod(pod))
                for owner in self._owners
            },
            own={
                owner: tuple(map(_make_pod_seen, self._pods_in_namespace(owner, OWN_NAMESPACE)))
                for owner in self._owners
            },
        )

    def loan_by_node(self) -> dict[Node, str]:
        """Returns the loan of each node that is lent now, by (owner, node)."""
        return {
            (owner, node["metadata"]["name"]): node["metadata"]["annotations"].get("spillway.io/loan", "")
            for owner in self._owners
            for node in self._objects_of_member(owner, "nodes")
            if _loan_state_of_node(node) == "lent"
        }

    async def _look_at_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            seen = self.lending_seen()
            for name, finding in find_doubled_pods(seen):
                self._add_finding_once(name, finding)
            for node in nodes_open_and_owned(seen):
                if await self._is_open_and_owned(node):
                    self._add_finding_once(
                        "/".join(node), Finding("shared", f"{'/'.join(node)} is open to the pool and its owner's")
                    )

    def _add_finding_once(self, name: str, finding: Finding) -> None:
        if name not in self._said:
            self._said.add(name)
            self._found.append(finding)

    async def _is_open_and_owned(self, node: Node) -> bool:
        """Returns whether owner and pool can surely use the node at once.

        That is certain if the real node had no taint both before and after its virtual node was seen open, and the
        real node did not change in between.
        """
        owner, name = node
        pool = self._members[self._pool].door
        try:
            async with open_session(self._members[owner].door) as here, open_session(pool) as there:
                before = await _get_object(here, f"/api/v1/nodes/{name}")
                virtual = await _get_object(there, f"/api/v1/nodes/{virtual_node_name(owner, name)}")
                after = await _get_object(here, f"/api/v1/nodes/{name}")
        except _TROUBLE:
            return False
        if before is None or virtual is None or after is None:
            return False
        versions = {one["metadata"]["resourceVersion"] for one in (before, after)}
        return _loan_state_of_node(before) == OWNED and _is_node_open(virtual) and len(versions) == 1

    def _objects_of_member(self, member: str, kind: str) -> Iterator[Entry]:
        return iter(self._members[member].known.get(kind, {}).values())

    def _pods_in_namespace(self, member: str, namespace: str) -> Iterator[Entry]:
        return (pod for pod in self._objects_of_member(member, "pods") if pod["metadata"]["namespace"] == namespace)

    def _virtual_nodes(self) -> Iterator[Entry]:
        return (
            node
            for node in self._objects_of_member(self._pool, "nodes")
            if LENT_CLUSTER in node["metadata"].get("labels", {})
        )


async def _get_object(session: aiohttp.ClientSession, path: str) -> Entry | None:
    async with session.get(path) as answer:
        if answer.status == 404:
            return None
        answer.raise_for_status()
        found: Entry = await answer.json()
        return found


def _loan_state_of_node(node: Entry) -> str:
    taints = node.get("spec", {}).get("taints") or ()
    return next((str(taint.get("value", "?")) for taint in taints if taint["key"] == LENDING), OWNED)


def _is_node_open(node: Entry) -> bool:
    """Returns whether some pod could be bound to the node, with any tolerations."""
    amounts = node.get("status", {}).get("allocatable", {}).values()
    return not node.get("spec", {}).get("unschedulable") or any(amount != "0" for amount in amounts)


def _is_real_pod(pod: Entry) -> bool:
    return POOL_UID in pod["metadata"].get("labels", {})


def _make_pod_seen(pod: Entry) -> PodSeen:
    metadata = pod["metadata"]
    ended = pod.get("status", {}).get("phase") in _ENDED
    return PodSeen(
        uid=metadata["uid"],
        node=pod["spec"].get("nodeName", ""),
        runs=is_pod_running(pod),
        going=ended or bool(metadata.get("deletionTimestamp")),
        pool_uid=metadata.get("labels", {}).get(POOL_UID, ""),
    )
