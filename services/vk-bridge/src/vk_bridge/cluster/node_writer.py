"""Carries out one step of a loan: a write in the owner, in the pool, or to the log."""

from collections.abc import Callable
from typing import Any, Literal

from spillway.clusters.api import NODES, AlreadyExists, ClusterApi
from spillway.lending_marks import PREFIX, virtual_node_name
from spillway.model import Generation
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.node_reader import Answers, Reading
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.marks import mark_patch
from vk_bridge.core.node.steps import (
    At,
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
)
from vk_bridge.core.node.virtual_node import TRANSIENT_TAINTS

Subresource = Literal["", "status"]
Change = tuple[dict[str, Any], Subresource]
SayLoan = Callable[[Reading, Generation], None]
SayLeftIn = Callable[[Reading, Generation, str], None]


class NodeWriter:
    """Of one owner cluster. Lets Conflict, Refused and ClusterUnreachable through."""

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

    async def carry_out(self, step: Step, reading: Reading, answers: Answers) -> bool:
        """Whether something was written to a cluster; what it answered is noted."""
        match step:
            case Mark():
                answers.node = await self._mark(step, reading)
            case CreateVirtual():
                await self._create(reading)
                answers.incomplete = True
            case ShowVirtual(at):
                answers.virtual = await self._show(reading, at, answers, is_open=True)
            case CloseVirtual(at):
                answers.virtual = await self._show(reading, at, answers, is_open=False)
            case DeleteVirtual(at):
                answers.let_go(at.uid, await self._delete(reading, at))
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

    async def _mark(self, mark: Mark, reading: Reading) -> Manifest:
        assert reading.node is not None
        change = mark_patch(reading.node, mark, self._fleet)
        at = mark.node
        return await self._gate.ask(
            lambda: self._api.patch(NODES, "", reading.name, change, resource_version=at.resource_version, uid=at.uid)
        )

    async def _create(self, reading: Reading) -> None:
        pool = reading.pool
        assert pool is not None
        manifest = reading.virtual_manifest(is_open=False)
        try:
            await pool.gate.ask(lambda: pool.api.create(NODES, manifest))
        except AlreadyExists:
            return  # Another bridge was faster, or somebody has the name: the next reading says which.

    async def _show(self, reading: Reading, at: At, answers: Answers, *, is_open: bool) -> Manifest:
        """The virtual node as it is then.

        Opened by its amounts first, closed by its spec first: whoever looks in between finds it closed enough.

        Of a real node that is gone, or that could not be read, nothing is known but that it is to be closed.
        """
        assert reading.virtual is not None
        if reading.node is not None:
            whole_node = reading.virtual_manifest(is_open=is_open)
            metadata = _metadata(reading.virtual, whole_node)
            spec = {**whole_node["spec"], "taints": _taints(reading.virtual, whole_node)}
            status = whole_node["status"]
        else:
            amounts = dict.fromkeys((reading.virtual.get("status") or {}).get("allocatable") or {}, "0")
            metadata, spec, status = {}, {"unschedulable": True}, {"allocatable": amounts, "capacity": amounts}
        whole: Change = ({"metadata": metadata, "spec": spec}, "")
        shown: Change = ({"status": status}, "status")
        first, then = (shown, whole) if is_open else (whole, shown)
        made = await self._patch_virtual(reading, *first, at)
        half = At(at.uid, made["metadata"]["resourceVersion"])
        answers.between.add((half.uid, half.resource_version))
        return await self._patch_virtual(reading, *then, half)

    async def _patch_virtual(
        self, reading: Reading, change: dict[str, Any], subresource: Subresource, at: At
    ) -> Manifest:
        pool = reading.pool
        assert pool is not None
        name = virtual_node_name(self._cluster, reading.name)
        return await pool.gate.ask(
            lambda: pool.api.patch(
                NODES, "", name, change, resource_version=at.resource_version, uid=at.uid, subresource=subresource
            )
        )

    async def _delete(self, reading: Reading, at: At) -> Manifest:
        pool = reading.pool
        assert pool is not None
        name = virtual_node_name(self._cluster, reading.name)
        return await pool.gate.ask(
            lambda: pool.api.delete(NODES, "", name, uid=at.uid, resource_version=at.resource_version)
        )


def _metadata(found: Manifest, made: Manifest) -> dict[str, Any]:
    """What is ours and no longer said is taken off; what the pool itself has added stays."""
    changed: dict[str, Any] = {}
    for key in ("labels", "annotations"):
        theirs, ours = found["metadata"].get(key) or {}, made["metadata"][key]
        gone = [name for name in theirs if name.startswith(PREFIX) and name not in ours]
        changed[key] = {**ours, **dict.fromkeys(gone)}
    return changed


def _taints(found: Manifest, made: Manifest) -> list[dict[str, Any]]:
    theirs = (found.get("spec") or {}).get("taints") or ()
    return [*made["spec"]["taints"], *(one for one in theirs if one["key"].startswith(TRANSIENT_TAINTS))]
