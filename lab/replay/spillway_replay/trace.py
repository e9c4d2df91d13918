"""Makes clusters that are as fragmented as a real one, from nodes and pods of the public trace openb."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from spillway.kubernetes.objects import Manifest

FOLDER = Path("shared/data/openb")
NODES_FILE, PODS_FILE = "openb_node_list_all_node.csv", "openb_pod_list_default.csv"
GPU = "nvidia.com/gpu"
MODEL_LABEL = "openb/gpu-model"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOST_LABEL = "kubernetes.io/hostname"
ZONES = ("z1", "z2", "z3")
PODS_A_NODE = 110
MISSES_MAX = 60
"""The number of pods in a row without a node after which a cluster counts as full."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    cpu_millis: int
    memory_mebibytes: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """A pod of the trace. models: the GPU models it accepts; empty: any. A share of a GPU counts as a whole one."""

    cpu_millis: int
    memory_mebibytes: int
    gpus: int
    models: tuple[str, ...] = ()

    @property
    def requests(self) -> dict[str, str]:
        amounts = {"cpu": f"{self.cpu_millis}m", "memory": f"{self.memory_mebibytes}Mi"}
        return amounts | ({GPU: str(self.gpus)} if self.gpus else {})


@dataclass(frozen=True, slots=True)
class Trace:
    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with pods of other users.

    pods: the bound pods. free_cpu_millis: the CPU that they leave free on all nodes together.
    joining: some of these pods: each fills the rest of a node until it ends, as if the node joined only then.
    """

    name: str
    tier: str
    nodes: tuple[Manifest, ...]
    pods: tuple[Manifest, ...]
    free_cpu_millis: int
    joining: tuple[Manifest, ...] = ()


def trace_folder(start: Path) -> Path | None:
    """Returns the folder of openb beside this checkout or beside a folder above it; None if there is none."""
    candidates = (parent / FOLDER for parent in start.resolve().parents)
    return next((folder for folder in candidates if (folder / NODES_FILE).is_file()), None)


def read_trace(folder: Path) -> Trace:
    with (folder / NODES_FILE).open() as file:
        nodes = tuple(
            TraceNode(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        )
    with (folder / PODS_FILE).open() as file:
        pods = tuple(
            TracePod(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]),
                tuple(model for model in row["gpu_spec"].split("|") if model),
            )
            for row in csv.DictReader(file)
            if int(row["cpu_milli"])
        )
    return Trace(nodes, pods)


def made_up_trace() -> Trace:
    """Returns a trace for machines without openb: a few sizes of nodes and pods that do not divide each other."""
    sizes = ((8000, 32768, 0), (16000, 65536, 2), (32000, 65536, 0), (24000, 131072, 4))
    pods = ((700, 900, 0), (1500, 3000, 0), (3100, 5600, 1), (5300, 15000, 0), (7900, 30500, 1), (4100, 24000, 2))
    return Trace(tuple(TraceNode(*size, "") for size in sizes), tuple(TracePod(*size) for size in pods))


def make_cluster_from_trace(trace: Trace, random: Random, name: str, tier: str, nodes: int, fill: float) -> Cluster:
    """Makes a cluster of nodes of the trace, and fills random nodes with its pods up to a share of the CPU.

    nodes: the number of nodes. fill: the share of the CPU, 0 to 1.
    """
    chosen = random.choices(trace.nodes, k=nodes)
    free = np.array([[n.cpu_millis, n.memory_mebibytes, n.gpus, PODS_A_NODE] for n in chosen], np.int64)
    models = np.array([node.model for node in chosen])
    whole, misses = int(free[:, 0].sum()), 0
    pods: list[Manifest] = []
    while misses < MISSES_MAX and free[:, 0].sum() > whole * (1 - fill):
        pod = random.choice(trace.pods)
        asked = np.array([pod.cpu_millis, pod.memory_mebibytes, pod.gpus, 1], np.int64)
        fitting = (free >= asked).all(axis=1)
        if pod.models:
            fitting &= np.isin(models, pod.models)
        if not fitting.any():
            misses += 1
            continue
        misses = 0
        index = random.choice(np.flatnonzero(fitting).tolist())
        free[index] -= asked
        pods.append(_pod_manifest_on_node(pod, f"there-{len(pods)}", f"{name}-n{index}"))
    manifests = tuple(
        _node_manifest(node, f"{name}-n{index}", random.choice(ZONES)) for index, node in enumerate(chosen)
    )
    return Cluster(name, tier, manifests, tuple(pods), int(free[:, 0].sum()))


def _node_manifest(node: TraceNode, name: str, zone: str) -> Manifest:
    labels = {HOST_LABEL: name, ZONE_LABEL: zone} | ({MODEL_LABEL: node.model} if node.model else {})
    allocatable = {"cpu": f"{node.cpu_millis}m", "memory": f"{node.memory_mebibytes}Mi", "pods": str(PODS_A_NODE)}
    if node.gpus:
        allocatable[GPU] = str(node.gpus)
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _pod_manifest_on_node(pod: TracePod, name: str, node: str) -> Manifest:
    return {
        "metadata": {"name": name, "namespace": "others", "uid": f"{node}/{name}", "labels": {"app": "others"}},
        "spec": {"nodeName": node, "containers": [container_manifest(pod)]},
        "status": {"phase": "Running"},
    }


def container_manifest(pod: TracePod) -> Manifest:
    return {"name": "main", "image": "app:1", "resources": {"requests": pod.requests, "limits": pod.requests}}


def make_fleet(trace: Trace, random: Random, nodes_by_cluster: Sequence[tuple[str, str, int]]) -> tuple[Cluster, ...]:
    """Makes the clusters of a fleet. Each is filled to a random share of 50 to 90 % of its CPU.

    nodes_by_cluster: (name, tier, number of nodes) of each cluster.
    """
    return tuple(make_cluster_from_trace(trace, random, *entry, random.uniform(0.5, 0.9)) for entry in nodes_by_cluster)


def with_joining_nodes(cluster: Cluster, random: Random, share: float) -> Cluster:
    """Returns the cluster with this share of its nodes filled at first, as if they joined later."""
    taken = {node["metadata"]["name"]: [0, 0, 0] for node in cluster.nodes}
    for pod in cluster.pods:
        for index, amount in enumerate(_parse_amounts(pod["spec"]["containers"][0]["resources"]["requests"])):
            taken[pod["spec"]["nodeName"]][index] += amount
    joining = []
    for node in random.sample(cluster.nodes, round(len(cluster.nodes) * share)):
        name = node["metadata"]["name"]
        whole = _parse_amounts(node["status"]["allocatable"])
        cpu, memory, gpus = (amount - used for amount, used in zip(whole, taken[name], strict=True))
        joining.append(_pod_manifest_on_node(TracePod(cpu, memory, gpus), f"joins-{name}", name))
    return replace(cluster, pods=(*cluster.pods, *joining), joining=tuple(joining))


def _parse_amounts(resources: Manifest) -> tuple[int, int, int]:
    """Returns (milli-cores, MiB of memory, GPUs) of amounts in the form that this module writes."""
    return int(resources["cpu"][:-1]), int(resources["memory"][:-2]), int(resources.get(GPU, 0))
