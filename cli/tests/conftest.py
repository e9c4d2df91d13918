"""A planner that answers from memory, on a real loopback gRPC port, in a thread of its own; and the command to run."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from spillway import api, api_scaling
from spillway.api import RequestError
from spillway.events import DecisionRecorded
from spillway.model import ClusterInput, Generation
from spillway.rpc.calls import LENDING, SCALING
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway_cli.main import app

from .fake_lending import FakeLending

ROOM = 100
"""Replicas that the fake fleet holds: own-1 first, then cloud-1, half each."""


class FakePlanner:
    """Keeps workloads in a dict. Replicas beyond ROOM wait; ready_after looks each cluster shows all of them ready.

    heard: state, trouble and its code (none: 0) that clusters show, one after the other; the last stays.
    error, refused: what everything that is asked meets, and what requests of a type do. is_called_off: somebody else
    makes a cluster Active again as soon as its phase was set.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.replicas: dict[tuple[str, str], int] = {}
        self.generation = 0
        self.looks = 0
        self.ready_after = 0
        self.gone_after = 0
        self.leaving = 0
        self.deleting: set[tuple[str, str]] = set()
        self.error: Exception | None = None
        self.refused: dict[type, RequestError] = {}
        self.is_called_off = False
        self.clusters: dict[str, api.JoinClusterRequest] = {}
        self.heard: list[tuple[str, str]] = []
        self.phases: dict[str, str] = {}
        self.handing_over = 0
        self.left: tuple[api.WorkloadLeft, ...] = ()
        """Of every cluster that hands over: the workloads that it still has."""
        self.loans = (0, 0)
        """Of every cluster: nodes that it has lent, and that are lent to it."""
        self.over_budget = 0
        self.moved_last_minute = 0
        self.nodes: tuple[api.ListedNode, ...] = ()
        self.brakes: dict[str, api.Brake] = {}
        self.confirmations: dict[str, api.Confirmation] = {}
        self.records: tuple[DecisionRecorded, ...] = ()
        self.history_page = 0
        """The number of decisions in one answer; 0: all that are asked for."""
        self.exported: list[api.ExportReply] = []
        self.orphans: tuple[api.Orphan, ...] = ()
        self.recoveries = 0
        self.warnings: tuple[str, ...] = ()
        """Of every placement."""
        self.scaled_by = ""
        """Of every workload."""
        self.explained: api.ExplainedCluster | None = None

    async def apply(self, request: api.ApplyRequest) -> api.PlacementReply:
        return self._declare_workload(request, keep=True)

    async def plan_batch(self, request: api.PlanBatchRequest) -> api.PlanBatchReply:
        """Refuses what is named bad-…"""
        self._note_request(request)
        return api.PlanBatchReply(tuple(self._answer_item(item) for item in request.items))

    def _answer_item(self, item: api.BatchItem) -> api.BatchAnswer:
        assert item.apply is not None
        reply = self._declare_workload(item.apply, keep=True)
        if reply.name.startswith("bad-"):
            return api.BatchAnswer("FAILED_PRECONDITION", "manifests[0]: no room", None)
        return api.BatchAnswer("OK", "", reply)

    async def explain(self, request: api.ExplainRequest) -> api.ExplainReply:
        self._note_request(request)
        reasons = (
            api.NodeReason(612, "NodeResourcesFit", "cpu short by 300m", "cpu", 300, 300, "n7"),
            api.NodeReason(40, "TaintToleration", "taint gpu=only:NoSchedule", example="g1"),
        )
        own = api.ExplainedCluster(
            "own-1", "own", False, 20, 22, 0, 20, "Room", "cpu", 652, reasons, 9, (("shop/api", 6),), 1200
        )
        change = api.ExplainedChange("Request", "", "cpu", 1000, 700, 20, 40, "a request of 700m cpu would place all")
        node = api.ExplainedNode("own-1", "n7", 0, (api.NodeFilter("NodeName", True, ""),)) if request.node else None
        return api.ExplainReply(
            namespace=request.namespace or "default",
            name=request.name or "web",
            decision=request.decision,
            at_ms=0,
            cause="",
            replicas=40,
            placed=20,
            unplaced=20,
            verdict="20 of 40 replicas have no place",
            clusters=(self.explained or own,),
            changes=(change,),
            node=node,
            unmodelled=("hostPID",),
            notes=(),
            stale=False,
        )

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        self._note_request(request)
        for reply in self.exported:
            yield reply

    async def plan(self, request: api.ApplyRequest) -> api.PlacementReply:
        return self._declare_workload(request, keep=False)

    async def scale(self, request: api.ScaleRequest) -> api.PlacementReply:
        self._note_request(request)
        self._check_known(request.namespace, request.name)
        if request.replicas < 0:
            raise api.invalid_argument_error("replicas", request.replicas, "0 to 100000")
        self.replicas[request.namespace, request.name] = request.replicas
        return self._placement_reply(request.namespace, request.name, request.replicas)

    async def migrate(self, request: api.MigrateRequest) -> api.PlacementReply:
        self._note_request(request)
        self._check_known(request.namespace, request.name)
        self.leaving = request.replicas
        return self._workload_reply(request.namespace, request.name).placement

    async def delete(self, request: api.DeleteRequest) -> api.PlacementReply:
        self._note_request(request)
        self._check_known(request.namespace, request.name)
        self.deleting.add((request.namespace, request.name))
        return self._workload_reply(request.namespace, request.name).placement

    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply:
        self._note_request(request)
        self.replicas[request.namespace, request.name] = 3
        return self._placement_reply(request.namespace, request.name, 3)

    async def disown(self, request: api.DisownRequest) -> api.PlacementReply:
        self._note_request(request)
        self._check_known(request.namespace, request.name)
        reply = self._placement_reply(request.namespace, request.name, 0)
        del self.replicas[request.namespace, request.name]
        return replace(reply, disowning=True)

    async def recover_fleet(self, request: api.RecoverFleetRequest) -> api.RecoverFleetReply:
        """Two workloads, one of which is refused; the other is declared in one call and taken over before the next."""
        self._note_request(request)
        self.recoveries += request.confirmed
        refused = api.RecoveredWorkload("shop", "api", "Refused", "two templates", (("own-1", 1),))
        state = "Recovering" if request.confirmed else "Found"
        web = api.RecoveredWorkload("shop", "web", state, "", (("own-1", 3), ("own-2", 2)))
        left = (refused,) if self.recoveries > 1 else (refused, web)
        return api.RecoverFleetReply(request.fleet_before, left, 0, ("own-1: a note",))

    async def list_orphans(self, request: api.ListOrphansRequest) -> api.ListOrphansReply:
        self._note_request(request)
        return api.ListOrphansReply(self.orphans, stale=False)

    async def get(self, request: api.GetRequest) -> api.WorkloadReply:
        self._note_request(request)
        self.looks += 1
        self.leaving = max(0, self.leaving - 2)
        key = (request.namespace, request.name)
        if key in self.deleting and self.looks > self.gone_after:
            self.replicas.pop(key, None)
        self._check_known(*key)
        reply = self._workload_reply(*key, request.history)
        if not self.history_page or not request.history:
            return reply
        numbers = [str(record.generation) for record in reply.history]
        first = numbers.index(request.history_from) if request.history_from else 0
        last = first + self.history_page
        return replace(reply, history=reply.history[first:last], history_next="".join(numbers[last : last + 1]))

    async def list(self, request: api.ListRequest) -> api.ListReply:
        self._note_request(request)
        keys = sorted(key for key in self.replicas if request.namespace in ("", key[0]))
        start = int(request.page_token or 0)
        token = str(start + 1) if start + 1 < len(keys) else ""
        return api.ListReply(tuple(self._workload_reply(*key) for key in keys[start : start + 1]), token, False)

    async def capacity(self, request: api.CapacityRequest) -> api.CapacityReply:
        self._note_request(request)
        return api.CapacityReply(self._cluster_inputs(0), ("hostPID",), False)

    async def join_cluster(self, request: api.JoinClusterRequest) -> api.ClusterReply:
        self._note_request(request)
        self.clusters[request.name] = request
        warnings = ("tier: 'gold': nothing is placed there",) if request.tier == "gold" else ()
        return replace(self._cluster_reply(request), warnings=warnings)

    async def set_cluster_phase(self, request: api.SetClusterPhaseRequest) -> api.ClusterMovesReply:
        reply = self._moves_from_cluster(request, request.phase)
        if self.is_called_off:
            self.phases[request.name] = "Active"
        return reply

    async def leave_cluster(self, request: api.LeaveClusterRequest) -> api.ClusterMovesReply:
        return self._moves_from_cluster(request, "Lost" if request.lost else "Leaving")

    def _moves_from_cluster(self, request: Any, phase: str) -> api.ClusterMovesReply:
        """Ten replicas hand over at each look; more than fifty need a confirmation."""
        self._note_request(request)
        if request.name not in self.clusters:
            raise RequestError("NOT_FOUND", f"name: {request.name!r}: no cluster of the fleet")
        changed, self.phases[request.name] = self.phases.get(request.name) != phase, phase
        replicas = self.handing_over if phase in ("Draining", "Leaving", "Lost") else 0
        scope = f"Drain/{request.name}"
        if replicas > 50:
            self.confirmations[scope] = api.Confirmation(scope, "Drain", request.name, replicas, 100, False, "", 0)
        frozen = self.brakes.get("fleet")
        return api.ClusterMovesReply(
            cluster=self._cluster_reply(self.clusters[request.name]),
            replicas=replicas,
            confirm=scope if replicas > 50 else "",
            frozen=f"fleet is frozen by {frozen.by}: {frozen.reason}" if frozen else "",
            changed=changed,
        )

    async def freeze(self, request: api.FreezeRequest) -> api.Brake:
        self._note_request(request)
        self.brakes[request.scope] = api.Brake(request.scope, True, request.reason, "ann", 1_700_000_000_000, 7)
        return self.brakes[request.scope]

    async def unfreeze(self, request: api.UnfreezeRequest) -> api.Brake:
        self._note_request(request)
        known = self.brakes.pop(request.scope, None)
        released = api.Brake(request.scope, False, "", "", 0, 0)
        return replace(released, reason=known.reason, by="ann", at_ms=1) if known else released

    async def confirm(self, request: api.ConfirmRequest) -> api.Confirmation:
        self._note_request(request)
        if request.scope not in self.confirmations:
            raise RequestError(
                "NOT_FOUND", f"scope: {request.scope!r}: no move of this scope waits for a confirmation; waiting: none"
            )
        given = replace(self.confirmations[request.scope], given=True, by="ann", at_ms=1_700_000_000_000)
        self.confirmations[request.scope] = given
        return given

    async def list_brakes(self, request: api.ListBrakesRequest) -> api.ListBrakesReply:
        self._note_request(request)
        brakes, confirmations = tuple(self.brakes.values()), tuple(self.confirmations.values())
        return api.ListBrakesReply(brakes, confirmations, 600.0, self.over_budget, False, self.moved_last_minute)

    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply:
        self._note_request(request)
        for name in [name for name, phase in self.phases.items() if phase in ("Draining", "Leaving", "Lost")]:
            if not any(not entry.given for entry in self.confirmations.values()):
                self.handing_over = max(0, self.handing_over - 10)
            if not self.handing_over and self.phases[name] != "Draining":
                del self.clusters[name], self.phases[name]
        return api.ListClustersReply(tuple(map(self._cluster_reply, self.clusters.values())), False)

    async def list_nodes(self, request: api.ListNodesRequest) -> api.ListNodesReply:
        """One a page."""
        self._note_request(request)
        start = int(request.page_token or 0)
        token = str(start + 1) if start + 1 < len(self.nodes) else ""
        return api.ListNodesReply(self.nodes[start : start + 1], token, 1500, stale=bool(token))

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        self._note_request(request)
        for number, (namespace, name) in enumerate(sorted(self.replicas)):
            yield api.WatchReply(str(number), namespace, name, False, self._workload_reply(namespace, name))
        yield api.WatchReply("9", "default", "old", True, None)
        await asyncio.Event().wait()

    def active_instance_address(self) -> str:
        return ""

    def _note_request(self, request: Any) -> None:
        self.asked.append(request)
        if error := self.error or self.refused.get(type(request)):
            raise error

    def _check_known(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self.replicas:
            raise RequestError("NOT_FOUND", f"workload {namespace}/{name}: not known")

    def _declare_workload(self, request: api.ApplyRequest, *, keep: bool) -> api.PlacementReply:
        self._note_request(request)
        values = [json.loads(text) for text in request.manifests]
        for index, value in enumerate(values):
            if value["kind"] not in ("Deployment", "ConfigMap", "Service", "PlacementPolicy"):
                raise api.invalid_argument_error(
                    f"manifests[{index}].kind", value["kind"], "Deployment, ConfigMap, Service"
                )
        workload = next(value for value in values if value["kind"] == "Deployment")
        namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
        replicas = workload["spec"]["replicas"]
        if keep:
            self.replicas[namespace, name] = replicas
        return self._placement_reply(namespace, name, replicas)

    def _cluster_inputs(self, replicas: int) -> tuple[ClusterInput, ...]:
        own, cloud = min(replicas, ROOM // 2), max(0, min(replicas, ROOM) - ROOM // 2)
        return (
            ClusterInput("own-1", "own", 50, 60, 0, 0, own, "cpu", 1200),
            ClusterInput("cloud-1", "cloud", 50, 50, 0, 0, cloud, "pods", -1),
        )

    def _placement_reply(self, namespace: str, name: str, replicas: int) -> api.PlacementReply:
        self.generation += 1
        unplaced = max(0, replicas - ROOM)
        inputs = self._cluster_inputs(replicas)
        return api.PlacementReply(
            namespace=namespace,
            name=name,
            generation=1,
            replicas=replicas,
            placed=replicas - unplaced,
            unplaced=unplaced,
            waiting_for="cpu" if unplaced else "",
            parts=tuple(
                api.PlacedPart(
                    each.cluster, each.tier, each.after, 0, (namespace, name) in self.deleting, 0, self.leaving
                )
                for each in inputs
                if each.after
            ),
            inputs=inputs,
            unmodelled=(),
            deleting=(namespace, name) in self.deleting,
            stale=False,
            scaled_by=self.scaled_by,
            warnings=self.warnings,
        )

    def _workload_reply(self, namespace: str, name: str, history: int = 0) -> api.WorkloadReply:
        placement = self._placement_reply(namespace, name, self.replicas[namespace, name])
        statuses = []
        for part in placement.parts:
            ready = part.replicas if self.looks > self.ready_after else 0
            pending = part.replicas - ready
            counts = (part.replicas, part.replicas, part.replicas, ready, ready, pending)
            statuses.append(api.ClusterStatus(part.cluster, "Present", "", *counts, "too few" if pending else ""))
        record = DecisionRecorded(
            namespace, name, Generation(7, 1), 1, "apply", 3, 0, self._cluster_inputs(3), (("t/0", 4),), "{}", "1"
        )
        return api.WorkloadReply(placement, "Deployment", tuple(statuses), self.records or (record,) * history)

    def _cluster_reply(self, request: api.JoinClusterRequest) -> api.ClusterReply:
        heard = self.heard.pop(0) if len(self.heard) > 1 else (self.heard or [("Ready", "")])[0]
        state, trouble, code = (*heard, 0)[:3]
        return api.ClusterReply(
            cluster=request.name,
            credential=request.credential,
            endpoint=request.endpoint,
            tier=request.tier,
            region=request.region,
            zone=request.zone,
            labels=request.labels,
            node_groups=(),
            state=state,
            trouble=trouble,
            trouble_code=code,
            age_ms=1500,
            nodes=3,
            nodes_ready=2,
            allocatable=(("cpu", 48000), ("memory", 64 * 2**30)),
            requested=(("cpu", 12500), ("memory", 16 * 2**30)),
            unschedulable_pods=0,
            phase=self.phases.get(request.name, "Active"),
            replicas=self.handing_over,
            workloads=len(self.left) or (1 if self.handing_over else 0),
            left=self.left,
            nodes_lent=self.loans[0],
            nodes_virtual=self.loans[1],
        )


class FakeScaling:
    """Keeps the HorizontalPodAutoscalers that it is told of, by namespace and name; each has one metric and 3 pods."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.policies: dict[tuple[str, str], api_scaling.PolicyReply] = {}
        self.explained: api_scaling.ExplainPolicyReply | None = None

    async def declare_policy(self, request: api_scaling.DeclarePolicyRequest) -> api_scaling.PolicyReply:
        """INVALID_ARGUMENT where the least is above the most."""
        self.asked.append(request)
        value = json.loads(request.manifest)
        metadata, spec = value["metadata"], value["spec"]
        key = (metadata["namespace"], metadata["name"])
        if spec["minReplicas"] > spec["maxReplicas"]:
            raise api.invalid_argument_error("spec.minReplicas", spec["minReplicas"], "at most maxReplicas")
        made = api_scaling.PolicyReply(
            namespace=key[0],
            name=spec["scaleTargetRef"]["name"],
            kind=value["kind"],
            policy=key[1],
            generation=Generation(7, 1),
            manifest=request.manifest,
            declared_ms=1_700_000_000_000,
            changed=key not in self.policies or self.policies[key].manifest != request.manifest,
            warnings=("spec.behavior has no effect: why",) if "behavior" in spec else (),
            replicas_min=spec["minReplicas"],
            replicas_max=spec["maxReplicas"],
            replicas=-1 if spec["scaleTargetRef"]["name"] == "nosuch" else 3,
            replicas_desired=4,
            targets="cpu: 40%/80%",
        )
        if not request.plan_only:
            self.policies[key] = made
        return made

    async def delete_policy(self, request: api_scaling.DeletePolicyRequest) -> api_scaling.PolicyReply:
        self.asked.append(request)
        self._known_policy(request)
        return self.policies.pop((request.namespace, request.policy))

    async def get_policy(self, request: api_scaling.GetPolicyRequest) -> api_scaling.PolicyReply:
        self.asked.append(request)
        return self._known_policy(request)

    async def list_policies(self, request: api_scaling.ListPoliciesRequest) -> api_scaling.ListPoliciesReply:
        """A page has one."""
        self.asked.append(request)
        keys = sorted(key for key in self.policies if request.namespace in ("", key[0]))
        start = int(request.page_token or 0)
        token = str(start + 1) if start + 1 < len(keys) else ""
        return api_scaling.ListPoliciesReply(tuple(self.policies[key] for key in keys[start : start + 1]), token, False)

    async def explain_policy(self, request: api_scaling.ExplainPolicyRequest) -> api_scaling.ExplainPolicyReply:
        self.asked.append(request)
        self._known_policy(request)
        assert self.explained is not None
        return self.explained

    async def report(self, request: api_scaling.ReportRequest) -> api_scaling.ReportReply:
        raise AssertionError("no command reports")

    def active_instance_address(self) -> str:
        return ""

    def _known_policy(self, request: Any) -> api_scaling.PolicyReply:
        key = (request.namespace, request.policy)
        if key not in self.policies:
            raise RequestError("NOT_FOUND", f"policy {key[0]}/{key[1]}: not declared")
        return self.policies[key]


class Served:
    """The fake planner, hpa and descheduler, where they listen, and a runner of commands against them."""

    def __init__(self, planner: FakePlanner, scaling: FakeScaling, lending: FakeLending, *addresses: str) -> None:
        self.planner = planner
        self.scaling = scaling
        self.lending = lending
        self.address, self.scaling_address, self.lending_address = addresses

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        environ = {
            "SPILLWAY_ENDPOINTS": self.address,
            "SPILLWAY_SCALING_ENDPOINTS": self.scaling_address,
            "SPILLWAY_LENDING_ENDPOINTS": self.lending_address,
            "SPILLWAY_RETRY_SECONDS": "0.3",
            "TERM": "dumb",
        }
        return CliRunner(env=environ).invoke(app, list(arguments), input=stdin)


@pytest.fixture
def spillway(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    """Its parameter, where a test has one, is the fleet that the services are of."""
    fleet: str = getattr(request, "param", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    planner, scaling, lending = FakePlanner(), FakeScaling(), FakeLending()
    addresses: Future[tuple[str, str, str]] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        settings = RpcSettings(port=0, stop_seconds=0.1)
        async with (
            RpcServer(planner, settings, fleet=fleet) as of_planner,
            RpcServer(scaling, settings, SCALING, fleet) as of_hpa,
            RpcServer(lending, settings, LENDING, fleet) as of_descheduler,  # type: ignore[arg-type]
        ):
            addresses.set_result((of_planner.address, of_hpa.address, of_descheduler.address))
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        yield Served(planner, scaling, lending, *addresses.result(10))
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    def write_file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write_file
