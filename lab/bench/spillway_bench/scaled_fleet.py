"""Makes the records of workloads, scale policies and pods on which the autoscaler is measured."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from spillway.events import WorkloadDeclared
from spillway.events_scaling import (
    ContainerRequests,
    ContainerUsage,
    LoadObserved,
    ObservedPod,
    PodRequests,
    PodsObserved,
    ScalePolicyDeclared,
)
from spillway.model import Generation, Policy

NAMESPACE = "shop"
PODS, CLUSTERS = 20, 10
PODS_EACH = PODS // CLUSTERS
SEED = 1
METRIC = "queue"
STARTED_MS = 1_000
REQUESTS = (PodRequests((ContainerRequests("app", (("cpu", 500), ("memory", 1_000_000_000)), False, False),)),)
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the fleet.

    workloads: the number of workloads, each with 20 pods in 10 clusters.
    records: the number of samples to decide on; the first ones are one for each workload.
    """

    workloads: int = 10_000
    records: int = 40_000


QUICK = Size(200, 2_000)


def workload_name(number: int) -> str:
    return f"workload-{number}"


def workload_declared_event(number: int) -> WorkloadDeclared:
    policy = Policy((), (), "Wait")
    return WorkloadDeclared(
        NAMESPACE, workload_name(number), "Deployment", 1, 1, b"{}", PODS, policy, (), (), (), deleting=False
    )


def policy_declared_event(
    number: int, metric: Mapping[str, object], generation: Generation, at_ms: int
) -> ScalePolicyDeclared:
    """Returns the declaration of a HorizontalPodAutoscaler. Every second one has a behavior."""
    name = workload_name(number)
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 100,
        "metrics": [metric],
    }
    if number % 2 == 0:
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 300}}
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
    kind, text = "HorizontalPodAutoscaler", json.dumps(manifest).encode()
    return ScalePolicyDeclared(NAMESPACE, name, generation, kind, name, text, at_ms)


def pods_observed_event(
    number: int, cluster: int, used_milli: tuple[int, ...], at_ms: int, sequence: int
) -> PodsObserved:
    """Returns the report of all pods of a workload in one cluster, with a sample of each pod."""
    name = workload_name(number)
    found = tuple(
        ObservedPod(
            name=f"{name}-{cluster}-{index}",
            phase="Running",
            deleting=False,
            started_ms=STARTED_MS,
            ready="true",
            ready_changed_ms=STARTED_MS,
            requests=0,
            sampled_ms=at_ms,
            window_ms=15_000,
            usage=(ContainerUsage("app", (("cpu", used), ("memory", 700_000_000))),),
        )
        for index, used in enumerate(used_milli)
    )
    return PodsObserved(NAMESPACE, name, f"cluster-{cluster}", 1, sequence, at_ms, "", REQUESTS, found)


def pods_events_of_workload(number: int, at_ms: int) -> Iterator[PodsObserved]:
    """Yields one report for each cluster of a workload, all with the same usage."""
    for cluster in range(CLUSTERS):
        yield pods_observed_event(number, cluster, (300,) * PODS_EACH, at_ms, 1)


def pod_sample_events(size: Size, from_ms: int) -> Iterator[PodsObserved]:
    """Yields reports of one workload in one cluster each, a millisecond apart. Each workload comes once at first."""
    chance = Random(SEED)
    for number in range(size.records):
        used = tuple(chance.randrange(500) for _ in range(PODS_EACH))
        workload, cluster = chance.randrange(size.workloads), chance.randrange(CLUSTERS)
        workload = number if number < size.workloads else workload
        yield pods_observed_event(workload, cluster, used, from_ms + number, number + 2)


def load_observed_event(number: int, value_milli: int, at_ms: int) -> LoadObserved:
    return LoadObserved(NAMESPACE, workload_name(number), METRIC, "", "", "", "", value_milli, at_ms, 0, "bench", "")
