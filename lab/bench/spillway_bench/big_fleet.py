"""Makes a fleet of many big clusters from a seed: packed blocks of nodes, as collectors send them, and workloads.

Nodes: six machine types in eight pools and three zones. A quarter of them is tainted. They are half full on average,
with about twenty pods each, of some 250 kinds. Shapes: each one requests another amount of cpu and memory. KINDS is the
mix of their other requirements.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.events import CapacityReported, ClusterJoined
from spillway.model import Int64s, LabelSet, NodeColumns, NodeGroup, PodTable, Taint
from spillway.wire import pack_columns

GIB = 2**30
SEED = 5
EPOCH = 1
NAMESPACE = "bench"

RESOURCES = (
    "cpu",
    "ephemeral-storage",
    "example.com/fpga",
    "hugepages-2Mi",
    "memory",
    "nvidia.com/gpu",
    "pods",
    "rdma/hca",
)
MACHINES = ((8_000, 32), (16_000, 64), (32_000, 128), (48_000, 192), (64_000, 256), (96_000, 768))
"""The machine types: (milli-cores, GiB of memory)."""
POOLS = ("general", "general", "general", "compute", "memory", "batch", "gpu", "dedicated")
ZONES = ("a", "b", "c")
OWN_OF_TEN = 8
"""The number of own clusters among ten. The others are cloud clusters and have a node group."""
PODS_OF_A_KIND = 2
POD_KINDS_PER_NODE = 10
POD_KINDS = 250

KINDS: Mapping[str, int] = {"plain": 60, "storage": 12, "selector": 12, "affinity": 8, "gpu": 5, "tolerating": 3}
"""The number of shapes of each kind, among a hundred."""
APART_KINDS: Mapping[str, int] = {"spread": 50, "apart": 50}
"""The number of shapes of each kind, among a hundred shapes with rules about other pods. They are measured apart."""


@dataclass(frozen=True, slots=True)
class FleetSize:
    clusters: int = 100
    nodes: int = 5_000
    shapes: int = 1_000
    shapes_apart: int = 100


FULL_FLEET = FleetSize()
QUICK_FLEET = FleetSize(clusters=10, nodes=200, shapes=50, shapes_apart=10)


def cluster_name(index: int) -> str:
    return f"cluster-{index:03}"


def cluster_joined_event(index: int) -> ClusterJoined:
    name = cluster_name(index)
    own = index % 10 < OWN_OF_TEN
    groups = () if own else (_GROUP,)
    return ClusterJoined(name, name, "", "own" if own else "cloud", f"region-{index % 4}", "", (), groups)


_GROUP = NodeGroup(
    name="burst",
    selector=(("pool", "burst"),),
    allocatable=(("cpu", 16_000), ("ephemeral-storage", 200 * GIB), ("memory", 64 * GIB), ("pods", 110)),
    labels=(("pool", "burst"),),
    taints=(),
    nodes_max=100,
    lead_time_seconds=120,
    cost_per_hour=1.0,
)


def capacity_reported_event(index: int, nodes: int, epoch: int = EPOCH) -> CapacityReported:
    """Returns the report of a cluster with all its nodes in one block."""
    columns_bytes = pack_columns(make_node_columns(index, nodes))
    return CapacityReported(cluster_name(index), epoch, 0, 1, 0, 0, columns_bytes, ())


def make_node_columns(index: int, nodes: int) -> NodeColumns:
    random = np.random.default_rng([SEED, index])
    machine, pool = random.integers(len(MACHINES), size=nodes), random.integers(len(POOLS), size=nodes)
    zone = random.integers(len(ZONES), size=nodes)
    allocatable = _allocatable_matrix(machine, pool)
    filled = np.clip(random.normal(0.5, 0.25, size=nodes), 0.02, 0.99)
    requested = (allocatable * filled).astype(np.int64)
    pods = _pod_kinds_by_node(random, nodes)
    requested[RESOURCES.index("pods")] = PODS_OF_A_KIND * POD_KINDS_PER_NODE
    requested[RESOURCES.index("cpu")] -= requested[RESOURCES.index("cpu")] % 10
    requested[RESOURCES.index("nvidia.com/gpu")] = allocatable[RESOURCES.index("nvidia.com/gpu")] // 2
    label_sets = tuple(_label_set_of_kind(kind) for kind in range(len(MACHINES) * len(POOLS) * len(ZONES)))
    cordoned = random.random(nodes) < 0.01
    return NodeColumns(
        names=tuple(f"{cluster_name(index)}-node-{row:05}" for row in range(nodes)),
        resources=RESOURCES,
        allocatable=allocatable,
        requested=requested,
        label_sets=label_sets,
        label_set=(machine * len(POOLS) + pool) * len(ZONES) + zone,
        taint_sets=((), (Taint("dedicated", "team", "NoSchedule"),), (Taint("gpu", "only", "NoSchedule"),)),
        taint_set=np.select([pool == POOLS.index("dedicated"), pool == POOLS.index("gpu")], [1, 2], 0).astype(np.int64),
        state=np.zeros(nodes, np.int64),
        unschedulable=cordoned.astype(np.int64),
        ports=(),
        pod_tables=tuple(PodTable(f"team-{kind % 20}", (("app", f"app-{kind}"),)) for kind in range(POD_KINDS)),
        pod_rows=np.repeat(np.arange(nodes), POD_KINDS_PER_NODE),
        pod_sets=pods.reshape(-1),
        pod_counts=np.full(nodes * POD_KINDS_PER_NODE, PODS_OF_A_KIND, np.int64),
    )


def _allocatable_matrix(machine: Int64s, pool: Int64s) -> Int64s:
    cpu = np.array([cpu for cpu, _ in MACHINES], np.int64)[machine]
    memory = np.array([memory for _, memory in MACHINES], np.int64)[machine] * GIB
    gpus = np.where(pool == POOLS.index("gpu"), 8, 0)
    nothing = np.zeros_like(cpu)
    by_resource = {
        "cpu": cpu - 200,
        "memory": memory - GIB,
        "pods": nothing + 110,
        "ephemeral-storage": nothing + 400 * GIB,
        "nvidia.com/gpu": gpus,
        "rdma/hca": gpus,
    }
    return np.stack([by_resource.get(name, nothing) for name in RESOURCES])


def _label_set_of_kind(kind: int) -> LabelSet:
    rest, zone = divmod(kind, len(ZONES))
    machine, pool = divmod(rest, len(POOLS))
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"m{machine}",
        "pool": POOLS[pool],
        "pool.number": str(pool),
        "topology.kubernetes.io/zone": ZONES[zone],
    }
    return tuple(sorted(labels.items()))


def _pod_kinds_by_node(random: np.random.Generator, nodes: int) -> Int64s:
    """Returns the kinds of pods on each node, as [nodes, kinds on a node]. A node has each kind at most once.

    Each node's kinds are in steps of 7 from a random first kind.
    """
    first = random.integers(POD_KINDS, size=(nodes, 1))
    return (first + 7 * np.arange(POD_KINDS_PER_NODE)) % POD_KINDS


# ── Workloads ───────────────────────────────────────────────────────────────────────────────────────────────────────


def random_deployment_manifests(count: int, kinds: Mapping[str, int], prefix: str, seed: int = SEED) -> Iterator[str]:
    """Yields `count` Deployments, each with another shape, in random order of their kinds."""
    random = np.random.default_rng([seed, len(prefix), *prefix.encode()])
    mix = [kind for kind, share in kinds.items() for _ in range(share)]
    for number in range(count):
        kind = mix[int(random.integers(len(mix)))]
        # The last digits differ for each number, so that no two shapes are equal.
        cpu = int(random.choice((100, 250, 500, 1_000, 2_000, 4_000, 8_000))) + number % 1_000
        memory = int(random.choice((128, 256, 512, 1_024, 4_096, 16_384))) + number // 1_000 + len(prefix)
        yield deployment_manifest(f"{prefix}-{number:05}", kind, int(random.integers(2, 21)), cpu, memory)


def deployment_manifest(name: str, kind: str, replicas: int, cpu_millis: int, memory_mib: int) -> str:
    requests: dict[str, Any] = {"cpu": f"{cpu_millis}m", "memory": f"{memory_mib}Mi"}
    spec: dict[str, Any] = {}
    labels = {"app": name}
    match kind:
        case "storage":
            requests["ephemeral-storage"] = "2Gi"
        case "selector":
            spec["nodeSelector"] = {"pool": "compute"}
        case "affinity":
            spec["affinity"] = {
                "nodeAffinity": _required_node_terms(
                    [_node_match_expression("topology.kubernetes.io/zone", "In", "a", "b")]
                )
            }
        case "gpu":
            requests["nvidia.com/gpu"] = "1"
            spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        case "tolerating":
            spec["tolerations"] = [{"key": "dedicated", "value": "team", "effect": "NoSchedule"}]
        case "spread":
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": labels},
                }
            ]
        case "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}
    template = {"metadata": {"labels": labels}, "spec": spec | {"containers": [container]}}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
    )


def _required_node_terms(expressions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions)}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _node_match_expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}
