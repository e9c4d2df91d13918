"""Who declares the policies of one seed and tells what the load is, and what sizes it must come to when it is constant.

A load is told through the log, as anybody may, or through hpa; some reports come twice, some after the next one.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from planner.core.knowledge.placement_waits import full_waits_text
from sim.core.pods import is_ready
from sim.settings import Settings as SimSettings
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ReportRequest
from spillway.bus import BusUnavailable
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog, ScaleDecided
from spillway.local_bus import LocalBus
from spillway_local.in_process import FLEET_ID
from spillway_simulation import members
from spillway_simulation.brownfield import NAMESPACE
from spillway_simulation.oracle import Known
from spillway_simulation.scaling_script import HEADROOM, PARTITIONS, PolicyStep, Scaled
from spillway_simulation.sights import SILENT_WATCH_SECONDS
from spillway_simulation.users import ask_until_answered
from spillway_simulation.world import World

CPU_TARGET_PERCENT = 60
COOLDOWN_SECONDS = 6
TOLERANCE = 0.1
RESTS_AFTER_SECONDS = 60.0
"""A control loop may still decide for so long after the last fault: three steps down, each after two windows."""
HEADROOM_RESTS_AFTER_SECONDS = 300.0
"""The same where one follows what is idle: each fall waits for pods' grace, and makes room that others may wait for."""
FALL_SECONDS = 40.0
"""The longest time between two falls of a workload that follows idle capacity: a grace of 30 s, 3 s until its end is
known, and two looks of 2 s."""
RESTING_SECONDS = 40.0
"""So long it is watched then: more than two windows."""

Report = LoadObserved | BacklogObserved


class Scaler:
    """Owner of one policy. done: every step was answered."""

    def __init__(self, world: World, scaled: Scaled) -> None:
        self.scaled = scaled
        self.done = False
        self.waits_for = ""
        self._world = world
        self._random = Random(f"{world.script.seed}/scaler/{scaled.workload}")
        self._bus = LocalBus(world.broker, FLEET_ID, f"scaler/{scaled.workload}")

    async def declare_all_steps(self) -> None:
        begun = self._world.loop.time()
        for step in self.scaled.steps:
            await asyncio.sleep(max(0.0, begun + step.at - self._world.loop.time()))
            self.waits_for = f"{step}"
            verb, request = self._request_of_step(step)
            self._world.oracle.note_in_trace(f"policy {self.scaled.workload} {verb} {step.most}")
            with suppress(RequestError):  # One that is deleted, and was not there.
                await ask_until_answered(self._world, self._random, verb, request, of="hpa")
        self.done, self.waits_for = True, ""

    def _request_of_step(self, step: PolicyStep) -> tuple[str, Any]:
        if step.most < 0:
            return "delete_policy", DeletePolicyRequest(NAMESPACE, self.scaled.workload)
        return "declare_policy", DeclarePolicyRequest(policy_manifest(self.scaled, step.most))

    # ── What the load is ────────────────────────────────────────────────────────────────────────────────────────

    async def report_load(self) -> None:
        """Until it is cancelled."""
        held: list[Report] = []
        while self.scaled.kind not in ("calendar", HEADROOM):
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
            if self.scaled.kind == "cpu":
                self._set_cpu_usage()
                continue
            report = self._make_report()
            if self._random.random() < self.scaled.late:
                held.append(report)
                continue
            reports = [report, *held, *([report] if self._random.random() < self.scaled.again else ())]
            held = []
            for one in reports:
                await self._send_report(one)

    def _set_cpu_usage(self) -> None:
        """The load is shared by the pods that are ready, wherever they are; orphans get none of it, and use nothing."""
        name, clusters = self.scaled.workload, self._world.clusters
        ready = {
            cluster: sum(is_ready(pod) for pod in members.pods_of(clusters[cluster], NAMESPACE, name))
            for cluster in clusters
        }
        shares = {cluster: 0 if self._world.is_name_taken(cluster, name) else count for cluster, count in ready.items()}
        for cluster, count in ready.items():
            amount = self.present_load() * 100 * shares[cluster] // max(1, sum(shares.values()))
            clusters[cluster].set_load(NAMESPACE, name, {"cpu": amount} if count else None)

    def present_load(self) -> int:
        return self.scaled.load_at(self._world.loop.time())

    def _make_report(self) -> Report:
        at_ms, level = self._world.platform.wall_ms(), self.present_load()
        if self.scaled.kind == "requests":
            return LoadObserved(
                NAMESPACE, self.scaled.workload, "requests", "", "", "", "", level * 1000, at_ms, 0, "scaler", ""
            )
        rows = tuple(
            PartitionBacklog("orders", n, 100 + lag, 100, 0) for n, lag in enumerate(_lag_of_each_partition(level))
        )
        return BacklogObserved(NAMESPACE, self.scaled.workload, "kafka", "g", "orders", rows, at_ms, "scaler", "")

    async def _send_report(self, report: Report) -> None:
        if self._random.random() < 0.5:
            with suppress(BusUnavailable):
                await self._bus.publish(report)
            return
        request = ReportRequest((report,)) if isinstance(report, LoadObserved) else ReportRequest(backlogs=(report,))
        process, hpa = self._random.choice(self._world.living_hpas() or [(None, None)])
        if process is not None and hpa is not None:
            await asyncio.wait({self._world.call_in_process(process, hpa.report(request))}, timeout=2.0)


def _lag_of_each_partition(total: int) -> list[int]:
    return [total // PARTITIONS + (number < total % PARTITIONS) for number in range(PARTITIONS)]


# ── Policies ────────────────────────────────────────────────────────────────────────────────────────────────────────


def policy_manifest(scaled: Scaled, most: int) -> str:
    metadata = {"name": f"{scaled.workload}-policy", "namespace": NAMESPACE}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": scaled.workload}
    bounds = {"minReplicas": scaled.least, "maxReplicas": most}
    match scaled.kind:
        case "backlog":
            kind, version = "ScaledObject", "keda.sh/v1alpha1"
            queue = {"bootstrapServers": "kafka:9092", "consumerGroup": "g", "topic": "orders"}
            trigger = {"type": "kafka", "metadata": {**queue, "lagThreshold": str(scaled.target)}}
            spec: dict[str, Any] = {
                "scaleTargetRef": {"name": scaled.workload},
                "minReplicaCount": scaled.least,
                "maxReplicaCount": most,
                "cooldownPeriod": COOLDOWN_SECONDS,
                "triggers": [trigger],
            }
        case "calendar":
            kind, version = "ScalePolicy", "spillway.io/v1"
            windows = [_window_in_manifest(scaled, number) for number in range(len(scaled.windows))]
            spec = {"scaleTargetRef": target, **bounds, "calendar": windows}
        case "headroom":
            kind, version = "ScalePolicy", "spillway.io/v1"
            shares = [{"supplyClass": one, "percent": scaled.target} for one in ("dedicated", "cloud")]
            spec = {"scaleTargetRef": target, **bounds, "headroom": shares}
        case _:
            kind, version = "HorizontalPodAutoscaler", "autoscaling/v2"
            spec = {"scaleTargetRef": target, **bounds, "metrics": [_metric_in_manifest(scaled)]}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def _metric_in_manifest(scaled: Scaled) -> dict[str, Any]:
    if scaled.kind == "cpu":
        target = {"type": "Utilization", "averageUtilization": CPU_TARGET_PERCENT}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    wanted = {"type": "AverageValue", "averageValue": str(scaled.target)}
    return {"type": "External", "external": {"metric": {"name": "requests"}, "target": wanted}}


def _window_in_manifest(scaled: Scaled, number: int) -> dict[str, Any]:
    window = scaled.windows[number]
    effect = {"blackout": True} if window.effect == "blackout" else {window.effect: window.number}
    begins, ends = (_date_text(seconds) for seconds in (window.begins, window.ends))
    return {"name": f"w{number}", "timeZone": "UTC", "from": begins, "until": ends, **effect}


def _date_text(seconds: int) -> str:
    start = datetime.fromtimestamp(SimSettings().start_unix_seconds, UTC)
    return (start + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


# ── What must come to be ────────────────────────────────────────────────────────────────────────────────────────────


def find_unsettled_scaling(world: World, scalers: list[Scaler]) -> Iterator[str]:
    """What is not yet as policies and the last load say; nothing when all is."""
    if world.active_hpa() is None and scalers:
        yield "no hpa is active"
        return
    for scaler in scalers:
        name = scaler.scaled.workload
        if not scaler.done:
            yield f"{name}: no answer yet to {scaler.waits_for}"
        sizes = world.oracle.scaling.sizes.get((NAMESPACE, name))
        known = world.oracle.workloads.get((NAMESPACE, name))
        if (sizes is not None and sizes.policy is not None) != (scaler.scaled.steps[-1].most >= 0):
            yield f"{name}: {scaler.scaled.steps[-1]} was answered, and the log says {sizes and sizes.policy}"
        elif sizes is not None and sizes.policy is not None and known is not None:
            if sizes.is_declaration_behind():
                yield f"{name}: {sizes.decided} is not declared"
            if not _counts_pods_of_orphan(world, scaler.scaled):
                yield from _find_wrong_size(scaler, known, sizes.decided)


def _counts_pods_of_orphan(world: World, scaled: Scaled) -> bool:
    """Whether pods of the name are there that no placement lists. hpa counts them: it does not read placements, and its
    replicas go up and down by one (docs/simulation.md, Known, and left; seed 700041).
    """
    name, clusters = scaled.workload, world.clusters
    taken = (cluster for cluster in clusters if world.is_name_taken(cluster, name))
    return scaled.kind == "cpu" and any(members.pods_of(clusters[cluster], NAMESPACE, name) for cluster in taken)


def _find_wrong_size(scaler: Scaler, known: Known, decided: ScaleDecided | None) -> Iterator[str]:
    """Where the size is another one than what a constant load asks for; a part of a cpu may have no place."""
    scaled, declared = scaler.scaled, known.declared
    if declared is None or declared.deleting or known.placement is None:
        return
    least, most = scaled.least, scaled.steps[-1].most
    load, now = scaler.present_load(), declared.replicas
    if scaled.kind == HEADROOM:
        return  # What there is to be is only said by what is to be judged; resting() sees that it comes to rest.
    if scaled.kind == "calendar":
        wanted = [least]
    elif scaled.kind == "backlog":
        partitions = sum(lag > 0 for lag in _lag_of_each_partition(load)) and PARTITIONS
        lag = min(load, partitions * scaled.target) if load // scaled.target > PARTITIONS else load
        wanted = _allowed_sizes(lag / scaled.target, max(least, 1) if load else least, most)
    elif now == 0 and (decided is None or decided.replicas > 0):
        return  # Somebody's own zero: a HorizontalPodAutoscaler leaves it.
    elif scaled.kind == "requests":
        wanted = _allowed_sizes(load / scaled.target, least, most)
    elif known.placement.unplaced or full_waits_text(known.placement):
        return  # Of pods that are missing, or of two templates, it is not said here what the use is.
    else:
        wanted = _allowed_sizes(load * 100 * 100 / (known.cpu * CPU_TARGET_PERCENT), least, most)
    if now not in wanted:
        yield f"{scaled.workload}: {now} replicas, a load of {load} asks for {wanted} ({scaled.kind})"


def _allowed_sizes(shares: float, least: int, most: int) -> list[int]:
    """Of the allowed sizes the one that bears so many replicas' load, and all that are within the tolerance of it."""
    exact = min(max(-int(-shares // 1), least), most)
    near = [size for size in range(max(least, 1), most + 1) if abs(shares / size - 1) <= TOLERANCE + 0.02]
    return sorted({exact, *near})


def count_falls(least: int, replicas: int, percent: int) -> int:
    """Returns how many times the replicas fall before they reach `least`. Other workloads take what each fall frees."""
    falls = 0
    while replicas > least and percent < 100:
        replicas, falls = max(replicas * percent // 100, least), falls + 1
    return falls


def _falls_left(world: World, scaled: Scaled) -> int:
    """Returns how many times the replicas may still fall. They fall only while other workloads wait for room."""
    workloads = world.oracle.workloads
    known = workloads.get((NAMESPACE, scaled.workload))
    if known is None or known.declared is None:
        return 0
    placements = (one.placement for one in workloads.values())
    waits = any(placement is not None and placement.unplaced for placement in placements)
    return count_falls(scaled.least, known.declared.replicas, scaled.target) if waits else 0


async def judge_scaling_at_rest(world: World, over: float) -> None:
    """Judges that nothing is decided any more once loops had their time, while load and capacity do not change."""
    scaling = world.oracle.scaling
    follows = [one for one in world.script.scaled if one.kind == HEADROOM]
    after = HEADROOM_RESTS_AFTER_SECONDS if follows else RESTS_AFTER_SECONDS
    if any(_counts_pods_of_orphan(world, one) for one in world.script.scaled):
        return
    falls = max((_falls_left(world, one) for one in follows), default=0)
    if falls:
        after = max(after, world.loop.time() - over + falls * FALL_SECONDS)
    if any(fault.kind == "versions-back" for fault in world.script.faults):
        after += SILENT_WATCH_SECONDS
    await asyncio.sleep(max(0.0, over + after - world.loop.time()))
    begins = world.loop.time()
    await asyncio.sleep(RESTING_SECONDS)
    if scaling.last_decision_at > begins:
        at = f"{scaling.last_decision_at:.3f} s"
        world.oracle.note_violation(f"decided at {at}, at constant load more than {after:g} s after all faults")
