"""Makes the workloads of a burst from pods of the trace. Some templates have rules about other pods."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from spillway.kubernetes.objects import Manifest

from .trace import HOST_LABEL, MODEL_LABEL, ZONE_LABEL, Trace, TracePod, container_manifest

Key = tuple[str, str]
PLAIN, BETWEEN = "plain", "between pods"
"""The kinds of shapes: without and with spread or affinity between pods."""
BETWEEN_SHARE = 0.25
REFUSE_SHARE = 0.5
NAMESPACES = ("team-a", "team-b", "team-c")
REPLICAS = (1, 1, 2, 2, 3, 4, 6, 10)
HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of a burst.

    refuse: True to place all replicas or none; False: replicas without a place wait.
    clusters: the clusters of the policy; empty: all, own ones first.
    """

    key: Key
    template: Manifest
    replicas: int
    kind: str
    refuse: bool
    clusters: tuple[str, ...] = ()

    @property
    def pod_template(self) -> Manifest:
        """Returns the template with the hash label that a cluster's controller gives to its pods."""
        metadata = self.template["metadata"]
        return self.template | {"metadata": metadata | {"labels": metadata["labels"] | {HASH_LABEL: "h0"}}}

    @property
    def plain_template(self) -> Manifest:
        """Returns the template without rules about other pods. A node for the full template fits this one, too."""
        spec = {name: entry for name, entry in self.template["spec"].items() if name != "topologySpreadConstraints"}
        if "affinity" in spec:
            spec["affinity"] = {name: entry for name, entry in spec["affinity"].items() if name == "nodeAffinity"}
        return self.pod_template | {"spec": spec}

    def manifests(self) -> tuple[str, ...]:
        namespace, name = self.key
        selector = {"matchLabels": self.template["metadata"]["labels"]}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": self.replicas, "selector": selector, "template": self.template},
        }
        spec: Manifest = {"unplaceable": "Refuse" if self.refuse else "Wait"}
        if self.clusters:
            spec["tiers"] = [{"name": "chosen", "clusters": {"names": list(self.clusters)}}]
        policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "metadata": {"name": name}, "spec": spec}
        return json.dumps(deployment), json.dumps(policy)


def make_burst(trace: Trace, random: Random, count: int, cpu_millis: int) -> list[Workload]:
    """Makes `count` workloads that together request about `cpu_millis` of CPU."""
    pods = [random.choice(trace.pods) for _ in range(count)]
    weights = [random.choice(REPLICAS) for _ in range(count)]
    asked = sum(pod.cpu_millis * weight for pod, weight in zip(pods, weights, strict=True))
    made = []
    for index, (pod, weight) in enumerate(zip(pods, weights, strict=True)):
        key = (random.choice(NAMESPACES), f"web-{index}")
        replicas = max(1, round(weight * cpu_millis / asked))
        kind = BETWEEN if random.random() < BETWEEN_SHARE else PLAIN
        template = _make_template(pod, key, kind, random)
        made.append(Workload(key, template, replicas, kind, random.random() < REFUSE_SHARE))
    return made


def _make_template(pod: TracePod, key: Key, kind: str, random: Random) -> Manifest:
    labels = {"app": key[1]}
    spec: Manifest = {"containers": [container_manifest(pod)]}
    affinity: Manifest = {}
    if pod.models:
        terms = [{"matchExpressions": [{"key": MODEL_LABEL, "operator": "In", "values": list(pod.models)}]}]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if kind == BETWEEN:
        _add_pod_constraints(spec, affinity, labels, random)
    if affinity:
        spec["affinity"] = affinity
    return {"metadata": {"labels": labels}, "spec": spec}


def _add_pod_constraints(spec: Manifest, affinity: Manifest, labels: dict[str, str], random: Random) -> None:
    own = {"labelSelector": {"matchLabels": labels}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match random.choice(("spread zones", "spread hosts", "apart", "near")):
        case "spread zones":
            constraint = {"maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [constraint | own]
        case "spread hosts":
            constraint = {"maxSkew": 2, "topologyKey": HOST_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [constraint | own]
        case "apart":
            affinity["podAntiAffinity"] = {required: [own | {"topologyKey": HOST_LABEL}]}
        case _:
            affinity["podAffinity"] = {required: [own | {"topologyKey": ZONE_LABEL}]}


def total_replicas(workloads: Sequence[Workload]) -> int:
    return sum(workload.replicas for workload in workloads)
