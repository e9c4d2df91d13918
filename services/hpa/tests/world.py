"""A log in memory, a planner that follows every decision, and one hpa that can be killed at any record."""

import json
from dataclasses import dataclass, field
from typing import Any

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.requests.answers import explain_workload
from hpa.core.requests.declaring import PolicyDecision
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.addresses import WORKLOADS, Tombstone, address_of_event, pods_address, workload_address
from spillway.api_scaling import PolicyReply
from spillway.events import Event, WorkloadDeclared
from spillway.events_scaling import (
    BacklogObserved,
    ContainerRequests,
    ContainerUsage,
    LoadObserved,
    ObservedPod,
    PartitionBacklog,
    PodRequests,
    PodsObserved,
    ScaleDecided,
    ScalePolicyDeclared,
    ScaleStateChanged,
)
from spillway.model import Generation, Policy

KEY = ("shop", "web")
START_MS = 1_000_000_000


def workload_declared(replicas: int, kind: str = "Deployment", **words: Any) -> WorkloadDeclared:
    fields: dict[str, Any] = {
        "namespace": KEY[0],
        "name": KEY[1],
        "kind": kind,
        "generation": 1,
        "template_generation": 1,
        "manifest": b"{}",
        "replicas": replicas,
        "policy": Policy((), (), "Wait"),
        "dependencies": (),
        "rolling_from": (),
        "answered": (),
        "deleting": False,
    }
    return WorkloadDeclared(**fields | words)


def hpa_manifest(metrics: list[dict[str, Any]], least: int = 1, most: int = 20, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web-hpa", "namespace": KEY[0]},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": KEY[1]},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": metrics,
            **spec,
        },
    }


def cpu_utilization_metric(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def external_metric(name: str, each: str) -> dict[str, Any]:
    return {
        "type": "External",
        "external": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": each}},
    }


def scaled_object_manifest(
    triggers: list[dict[str, Any]], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web-so", "namespace": KEY[0], "annotations": annotations or {}},
        "spec": {"scaleTargetRef": {"name": KEY[1]}, "triggers": triggers, **spec},
    }


KAFKA = {
    "type": "kafka",
    "metadata": {"bootstrapServers": "kafka:9092", "consumerGroup": "g", "topic": "orders", "lagThreshold": "10"},
}


def scale_policy_manifest(**spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": KEY[1]}
    return {
        "apiVersion": "spillway.io/v1",
        "kind": "ScalePolicy",
        "metadata": {"name": "web-own", "namespace": KEY[0]},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 40, **spec},
    }


def pods_observed(
    cluster: str, used_milli: list[int | None], at_ms: int, sequence: int = 1, ready: str = "true", trouble: str = ""
) -> PodsObserved:
    """Pods that request one cpu each and began long ago. None: without a sample."""
    requests = PodRequests((ContainerRequests("app", (("cpu", 1000),)),))
    return PodsObserved(
        *KEY,
        cluster,
        1,
        sequence,
        at_ms,
        trouble,
        (requests,),
        tuple(
            ObservedPod(
                f"web-{number}",
                "Running",
                False,
                1_000,
                ready,
                2_000,
                0,
                0 if used is None else at_ms,
                15_000,
                () if used is None else (ContainerUsage("app", (("cpu", used),)),),
            )
            for number, used in enumerate(used_milli)
        ),
    )


def load_observed(metric: str, value: float, at_ms: int, series: str = "", trouble: str = "") -> LoadObserved:
    return LoadObserved(*KEY, metric, "", series, "", "", round(value * 1000), at_ms, 0, "test", trouble)


def backlog_observed(lags: list[int], at_ms: int, trouble: str = "", topic: str = "orders") -> BacklogObserved:
    rows = tuple(PartitionBacklog(topic, number, 1000 + lag, 1000, 0) for number, lag in enumerate(lags))
    return BacklogObserved(*KEY, "kafka", "g", topic, () if trouble else rows, at_ms, "test", trouble)


@dataclass
class World:
    """heard: every decision that reached the log. follows: the planner declares each of them at once."""

    rules: HpaRules = field(default_factory=HpaRules)
    follows: bool = True
    log: list[HeardRecord] = field(default_factory=list)
    decided: list[ScaleDecided] = field(default_factory=list)
    epoch: int = 0
    now_ms: int = START_MS
    made_of: type[HpaState] = HpaState

    def __post_init__(self) -> None:
        self.restart()

    @property
    def current_replicas(self) -> int:
        return self.state.current_replicas(KEY)

    def restart(self) -> None:
        """Another process takes the turn: all that it knows is the log."""
        self.state = self.made_of(self.rules, lambda _: 0)
        for heard in self.log:
            self.state.follow_record(heard)
        self.state.apply_early_records()
        self.epoch += 1
        self._sequence = 0
        self._write_events(self.state.take_turn(self._next_generation, self.now_ms))

    def declare_policy(self, manifest: dict[str, Any]) -> None:
        text, name = json.dumps(manifest).encode(), manifest["metadata"]["name"]
        event = ScalePolicyDeclared(*KEY, self._next_generation(), manifest["kind"], name, text, self.now_ms)
        self._write_events(self.state.put_policy_in_force(event))

    def publish_input(self, event: Event, *, heard: bool = True) -> None:
        """An input record. heard False: this process is killed before it reads it."""
        at_ms = getattr(event, "at_ms", 0) or getattr(event, "observed_ms", 0)
        self.advance_to(max(at_ms, self.now_ms))
        record = self._append_record(event)
        if heard:
            self._write_events(self.state.decide_on_record(record, self.now_ms))

    def delete_workload(self) -> None:
        self._write_events(
            self.state.decide_on_record(self._append_record(Tombstone(workload_address(WORKLOADS, *KEY))), self.now_ms)
        )

    def delete_pods_record(self, cluster: str) -> None:
        """A tombstone: no pod of the workload runs in this cluster any more."""
        self._write_events(
            self.state.decide_on_record(self._append_record(Tombstone(pods_address(*KEY, cluster))), self.now_ms)
        )

    @property
    def state_times_ms(self) -> list[int]:
        """The times of the states that were written, in the order of the log."""
        return [one.event.at_ms for one in self.log if isinstance(one.event, ScaleStateChanged)]

    def advance_to(self, at_ms: int) -> None:
        """Time passes; what is due is decided."""
        while (due := self.state.next_due_ms()) is not None and due <= at_ms:
            self._write_events(self.state.make_due_decisions(due))
        self.now_ms = max(self.now_ms, at_ms)

    def _write_events(self, events: list[Event]) -> None:
        for event in (*events, *self.state.take_unwritten_states()):
            self._append_record(event)
            if isinstance(event, ScaleDecided):
                self.decided.append(event)
        newest = next((event for event in reversed(events) if isinstance(event, ScaleDecided)), None)
        if newest is not None and self.follows:
            self.publish_input(workload_declared(newest.replicas, scale_generation=newest.generation))

    def _append_record(self, event: Event | Tombstone) -> HeardRecord:
        address = event.address if isinstance(event, Tombstone) else address_of_event(event)
        offset = sum(1 for one in self.log if one.topic == address.topic.name)
        record = HeardRecord(
            address.topic.name, 0, offset, address.key, None if isinstance(event, Tombstone) else event
        )
        self.log.append(record)
        return record

    def _next_generation(self) -> Generation:
        self._sequence += 1
        return Generation(self.epoch, self._sequence)


def apply_decision(state: HpaState, decision: PolicyDecision) -> tuple[list[Any], PolicyReply]:
    """The events and the answer of a request, once it is applied as hpa applies it."""
    if decision.draft is not None:
        decision.draft.apply_to(state)
    return decision.events, decision.reply


def decided_sizes(world: World) -> list[tuple[int, int]]:
    """(milliseconds since the start, replicas) of every decision."""
    return [(one.at_ms - START_MS, one.replicas) for one in world.decided]


def ms_after_start(seconds: float) -> int:
    return START_MS + round(seconds * 1000)


def world_under_policy(manifest: dict[str, Any], replicas: int = 2, **words: Any) -> World:
    made = World(**words)
    made.publish_input(workload_declared(replicas))
    made.declare_policy(manifest)
    return made


def condition_of_policy(made: World, kind: str) -> tuple[str, str]:
    found = explain_workload(made.state, made.state.scaled[KEY]).conditions
    return next((one.status, one.reason) for one in found if one.type == kind)
