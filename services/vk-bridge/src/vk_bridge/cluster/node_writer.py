"""Carries out one step of a loan: a write to the owner, to the pool, or to the log."""

from collections.abc import Callable
from typing import Any, Literal

from spillway.clusters.api import NODES, AlreadyExists, ClusterApi
from spillway.lending_marks import PREFIX, virtual_node_name
from spillway.model import Generation
from vk_bridge.cluster.answers import WriteAnswers
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.marks import mark_patch
from vk_bridge.core.node.steps import (
    CloseVirtual,
    CreateVirtual,
    DeleteVirtual,
    Mark,
    SayLeft,
    SayLent,
    SayReturned,
    ShowVirtual,
    Step,
    WaitUntil,
    WriteTarget,
)
from vk_bridge.core.node.virtual_node import TRANSIENT_TAINTS

Subresource = Literal["", "status"]
Change = tuple[dict[str, Any], Subresource]
SayLoan = Callable[[NodeReading, Generation], None]
SayLeftIn = Callable[[NodeReading, Generation, str], None]


class NodeWriter:
    """Writes the nodes of one owner cluster. Raises Conflict, Refused and ClusterUnreachable."""

    def __init__(
        self,
        cluster: str,
        fleet: str,
        api: ClusterApi,
        gate: BackoffGate,
        say_lent: SayLoan,
        say_returned: SayLoan,
        say_left: SayLeftIn,
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._api = api
        self._gate = gate
        self._say_lent = say_lent
        self._say_returned = say_returned
        self._say_left = say_left

    async def carry_out_step(self, step: Step, reading: NodeReading, answers: WriteAnswers) -> bool:
        """Carries out a step. Returns whether a cluster was written to; its answer goes to `answers`."""
        match step:
            case Mark():
                answers.node = await self._write_register(step, reading)
            case CreateVirtual():
                await self._create_virtual_node(reading)
                answers.incomplete = True
            case ShowVirtual(at):
                answers.virtual = await self._open_or_close_virtual_node(reading, at, answers, is_open=True)
            case CloseVirtual(at):
                answers.virtual = await self._open_or_close_virtual_node(reading, at, answers, is_open=False)
            case DeleteVirtual(at):
                answers.note_object_removal(at.uid, await self._delete_virtual_node(reading, at))
            case SayLent(loan):
                self._say_lent(reading, loan)
                return False
            case SayReturned(loan):
                self._say_returned(reading, loan)
                return False
            case SayLeft(loan, pool):
                self._say_left(reading, loan, pool)
                return False
            case WaitUntil():
                return False
        return True

    async def _write_register(self, mark: Mark, reading: NodeReading) -> Manifest:
        assert reading.node is not None
        change = mark_patch(reading.node, mark, self._fleet)
        at = mark.node
        return await self._gate.send_request(
            lambda: self._api.patch(NODES, "", reading.name, change, resource_version=at.resource_version, uid=at.uid)
        )

    async def _create_virtual_node(self, reading: NodeReading) -> None:
        pool = reading.pool
        assert pool is not None
        manifest = reading.virtual_manifest(is_open=False)
        try:
            await pool.gate.send_request(lambda: pool.api.create(NODES, manifest))
        except AlreadyExists:
            return  # Another bridge was faster, or another object has the name. The next reading shows which.

    async def _open_or_close_virtual_node(
        self, reading: NodeReading, at: WriteTarget, answers: WriteAnswers, *, is_open: bool
    ) -> Manifest:
        """Opens or closes the virtual node, and returns it as it is afterwards.

        Opening writes the amounts first, and closing writes the spec first. So a reader between the two writes sees
        a node that takes no pod. If the real node is gone or was not read, only closing is possible, because nothing
        else is known.
        """
        assert reading.virtual is not None
        if reading.node is not None:
            whole_node = reading.virtual_manifest(is_open=is_open)
            metadata = _metadata_to_write(reading.virtual, whole_node)
            spec = {**whole_node["spec"], "taints": _taints_to_write(reading.virtual, whole_node)}
            status = whole_node["status"]
        else:
            amounts = dict.fromkeys((reading.virtual.get("status") or {}).get("allocatable") or {}, "0")
            metadata, spec, status = {}, {"unschedulable": True}, {"allocatable": amounts, "capacity": amounts}
        whole: Change = ({"metadata": metadata, "spec": spec}, "")
        shown: Change = ({"status": status}, "status")
        first, then = (shown, whole) if is_open else (whole, shown)
        made = await self._patch_virtual_node(reading, *first, at)
        half = WriteTarget(at.uid, made["metadata"]["resourceVersion"])
        answers.between.add((half.uid, half.resource_version))
        return await self._patch_virtual_node(reading, *then, half)

    async def _patch_virtual_node(
        self, reading: NodeReading, change: dict[str, Any], subresource: Subresource, at: WriteTarget
    ) -> Manifest:
        pool = reading.pool
        assert pool is not None
        name = virtual_node_name(self._cluster, reading.name)
        return await pool.gate.send_request(
            lambda: pool.api.patch(
                NODES, "", name, change, resource_version=at.resource_version, uid=at.uid, subresource=subresource
            )
        )

    async def _delete_virtual_node(self, reading: NodeReading, at: WriteTarget) -> Manifest:
        pool = reading.pool
        assert pool is not None
        name = virtual_node_name(self._cluster, reading.name)
        return await pool.gate.send_request(
            lambda: pool.api.delete(NODES, "", name, uid=at.uid, resource_version=at.resource_version)
        )


def _metadata_to_write(found: Manifest, made: Manifest) -> dict[str, Any]:
    """Returns labels and annotations to write: our obsolete keys are removed, and keys that the pool added stay."""
    changed: dict[str, Any] = {}
    for key in ("labels", "annotations"):
        theirs, ours = found["metadata"].get(key) or {}, made["metadata"][key]
        gone = [name for name in theirs if name.startswith(PREFIX) and name not in ours]
        changed[key] = {**ours, **dict.fromkeys(gone)}
    return changed


def _taints_to_write(found: Manifest, made: Manifest) -> list[dict[str, Any]]:
    theirs = (found.get("spec") or {}).get("taints") or ()
    return [*made["spec"]["taints"], *(one for one in theirs if one["key"].startswith(TRANSIENT_TAINTS))]
