"""Makes the objects of a small cluster: nodes, namespaces, bound and other pods, volumes. Every choice is Chance's."""

from typing import Any

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, pick_at_least_one, pick_at_most
from .pods import (
    APPS,
    HASH,
    NAMESPACES,
    USUAL_NAMESPACES,
    make_container,
    make_host_ports,
    make_pod_affinity,
    make_requests,
)

ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
OLD_ZONE, REGION = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region"
ZONES = ("z1", "z2", "z3")
CLAIMS = ("data", "logs")
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
RACKS = ("r1", "r2")
GENERATIONS = ("3", "7", "12", "07", "1_0", "seven", "", "99999999999999999999")
NEW_HASH = "new"
"""The template's own hash, which the cluster's controller gives to the replicas."""
GPU = "nvidia.com/gpu"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TAINTS: tuple[dict[str, str], ...] = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "dedicated", "effect": "NoSchedule"},
    {"key": "soft", "value": "x", "effect": "PreferNoSchedule"},
    {"key": "leaving", "value": "5", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
)


def make_nodes(chance: Chance, most: int, roomy: bool) -> Manifests:
    """Makes nodes. roomy: up to 10 pods a node, and several resources may bind; otherwise few pods of one kind."""
    return [_make_node(chance, index, roomy) for index in range(chance.pick_integer(1, most))]


def _make_node(chance: Chance, index: int, roomy: bool) -> Manifest:
    name = f"n{index}"
    spec: Manifest = {}
    taints = pick_at_most(chance, TAINTS, 2) if chance.is_chosen(25) else []
    if chance.is_chosen(8):
        spec["unschedulable"] = True
        taints += [UNSCHEDULABLE] if chance.is_chosen(60) else []
    if taints:
        spec["taints"] = list({(taint["key"], taint["effect"]): taint for taint in taints}.values())
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": _make_node_labels(chance, name)},
        "spec": spec,
        "status": {"allocatable": _make_allocatable(chance, roomy)},
    }


def _make_node_labels(chance: Chance, name: str) -> dict[str, str]:
    labels = {HOSTNAME: name, ZONE: chance.pick_option(ZONES)}
    if chance.is_chosen(50):
        labels[RACK] = chance.pick_option(RACKS)
    if chance.is_chosen(50):
        labels["disk"] = chance.pick_option(("ssd", "hdd", ""))
    if chance.is_chosen(30):
        labels["gen"] = chance.pick_option(GENERATIONS)
    if chance.is_chosen(6):
        del labels[ZONE]
    if chance.is_chosen(5):
        labels[HOSTNAME] = f"{name}.example.com"
    elif chance.is_chosen(3):
        del labels[HOSTNAME]
    return labels


def _make_allocatable(chance: Chance, roomy: bool) -> dict[str, Any]:
    if not roomy:
        return {"cpu": "8", "memory": "32Gi", "pods": str(chance.pick_integer(1, 5))}
    allocatable = {
        "cpu": chance.pick_option(("2", "500m", "1", "4", "7500m", "1.999")),
        "memory": chance.pick_option(("4Gi", "512Mi", "1Gi", "4000M", "1.5Gi", "8e9", "0")),
        "pods": str(chance.pick_integer(1, 10)),
    }
    if chance.is_chosen(40):
        allocatable["ephemeral-storage"] = chance.pick_option(("10Gi", "1Gi", "0"))
    if chance.is_chosen(35):
        allocatable[GPU] = chance.pick_option(("2", "1", "8", "0"))
    if chance.is_chosen(20):
        allocatable["hugepages-2Mi"] = chance.pick_option(("64Mi", "2Mi"))
    if chance.is_chosen(2):
        del allocatable[chance.pick_option(("cpu", "memory", "pods"))]
    return allocatable


def make_namespaces(chance: Chance) -> Manifests:
    return [
        {
            "metadata": {
                "name": name,
                "uid": f"namespace-{name}",
                "labels": {"kubernetes.io/metadata.name": name, "team": chance.pick_option(("red", "blue"))},
            }
        }
        for name in NAMESPACES
    ]


def make_pods(chance: Chance, nodes: Manifests, most: int, affinity: bool) -> Manifests:
    names = [node["metadata"]["name"] for node in nodes]
    return [_make_bound_pod(chance, index, names, affinity) for index in range(chance.pick_integer(0, most))]


def _make_bound_pod(chance: Chance, index: int, names: list[str], affinity: bool) -> Manifest:
    """Makes a pod that is nearly always bound and running. A few ended, terminate, wait, or are on a removed node."""
    name = f"p{index}"
    spec: Manifest = {
        "nodeName": chance.pick_option(names),
        "containers": [make_container("c0", {"requests": make_requests(chance, small=True)})],
    }
    if chance.is_chosen(20):
        _add_more_requests(chance, spec)
    if chance.is_chosen(15):
        spec["containers"][0]["ports"] = make_host_ports(chance, 1)
    if affinity and chance.is_chosen(60):
        spec["affinity"] = make_pod_affinity(chance, of_template=False)
    metadata: Manifest = {
        "name": name,
        "namespace": chance.pick_option(USUAL_NAMESPACES),
        "uid": f"pod-{name}",
        "labels": {"app": chance.pick_option(APPS), "version": chance.pick_option(("1", "2"))},
    }
    if chance.is_chosen(40):
        metadata["labels"][HASH] = chance.pick_option(("old", NEW_HASH))
    status: Manifest = {"phase": "Running"}
    if chance.is_chosen(5):
        status |= _make_resize_status(chance)
    fate = chance.pick_integer(0, 29)
    if fate == 29:
        status["phase"] = chance.pick_option(("Succeeded", "Failed"))
    elif fate in (27, 28):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif fate == 26:
        del spec["nodeName"]
        status["phase"] = "Pending"
    elif fate == 25:
        spec["nodeName"] = "gone"
    return {"metadata": metadata, "spec": spec, "status": status}


def _add_more_requests(chance: Chance, spec: Manifest) -> None:
    """Adds requests only. The API server has already turned limits into requests in a stored pod."""
    spec["containers"].append(make_container("c1", {"requests": make_requests(chance)}))
    if chance.is_chosen(40):
        init = make_container("i0", {"requests": make_requests(chance)})
        spec["initContainers"] = [init | ({"restartPolicy": "Always"} if chance.is_chosen(50) else {})]
        spec["initContainers"].append(make_container("i1", {"requests": make_requests(chance)}))
    if chance.is_chosen(20):
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if chance.is_chosen(20):
        spec["resources"] = {"requests": {"cpu": chance.pick_option(("4", "3500m"))}}


def _make_resize_status(chance: Chance) -> Manifest:
    """Makes a status of a container whose resize in place was requested and is not done yet."""
    actual = {"cpu": chance.pick_option(("600m", "2", "50m")), "memory": chance.pick_option(("256Mi", "1Gi"))}
    of_container: Manifest = {"name": chance.pick_option(("c0", "i0")), "resources": {"requests": actual}}
    if chance.is_chosen(50):
        of_container["allocatedResources"] = {"cpu": chance.pick_option(("700m", "3"))}
    kind = "containerStatuses" if of_container["name"] == "c0" else "initContainerStatuses"
    status: Manifest = {kind: [of_container]}
    if chance.is_chosen(20):
        status |= {"resources": {"requests": actual}, "allocatedResources": {"cpu": "4500m"}}
    if chance.is_chosen(40):
        reason = chance.pick_option(("Deferred", "Infeasible"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def make_volumes_and_claims(chance: Chance, nodes: Manifests) -> dict[str, Manifests]:
    """Makes claims `data` and `logs` in each namespace and their volumes, mostly bound. Some nodes get legacy
    labels."""
    for node in nodes:
        labels = node["metadata"]["labels"]
        if ZONE in labels and chance.is_chosen(15):
            labels[OLD_ZONE] = labels[ZONE] if chance.is_chosen(60) else labels.pop(ZONE)
    names = [node["metadata"]["name"] for node in nodes]
    volumes: Manifests = []
    claims: Manifests = []
    for namespace in NAMESPACES:
        for claim in CLAIMS:
            volumes.append(_make_volume(chance, namespace, claim, names))
            claims.append(_make_volume_claim(chance, namespace, claim))
    return {"volumes": volumes, "claims": claims}


def _make_volume(chance: Chance, namespace: str, claim: str, node_names: list[str]) -> Manifest:
    """Makes a volume that node affinity, labels, both or nothing binds to nodes."""
    name = f"pv-{namespace}-{claim}"
    spec: Manifest = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "claimRef": {"namespace": namespace, "name": claim, "uid": f"claim-{namespace}-{claim}"},
        "nfs": {"server": "nfs", "path": "/"},
    }
    labels = {}
    if chance.is_chosen(50):
        terms = [_make_volume_term(chance, node_names) for _ in range(chance.pick_integer(1, 2))]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if chance.is_chosen(40):
        labels[chance.pick_option((ZONE, OLD_ZONE))] = "__".join(pick_at_least_one(chance, ZONES, 2))
    if chance.is_chosen(5):
        labels[REGION] = "r1"
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec}


def _make_volume_term(chance: Chance, node_names: list[str]) -> Manifest:
    zones, names = pick_at_least_one(chance, ZONES, 2), pick_at_least_one(chance, node_names, 2)
    expressions: tuple[Manifest, ...] = (
        {"key": ZONE, "operator": "In", "values": zones},
        {"key": HOSTNAME, "operator": "In", "values": names},
        {"key": ZONE, "operator": "NotIn", "values": zones},
        {"key": RACK, "operator": "Exists"},
        {"key": "disk", "operator": "DoesNotExist"},
        {"key": "gen", "operator": "Gt", "values": ["5"]},
    )
    fields: Manifest = {"key": "metadata.name", "operator": chance.pick_option(("NotIn", "In")), "values": names[:1]}
    if chance.is_chosen(6):
        return {"matchFields": [fields]} | ({"matchExpressions": [expressions[0]]} if chance.is_chosen(50) else {})
    return {"matchExpressions": [expressions[0] if chance.is_chosen(50) else chance.pick_option(expressions)]}


def _make_volume_claim(chance: Chance, namespace: str, name: str) -> Manifest:
    uid = f"claim-{namespace}-{name}"
    metadata: Manifest = {"name": name, "namespace": namespace, "uid": uid}
    spec: Manifest = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    if not chance.is_chosen(6):
        spec["volumeName"] = f"pv-{namespace}-{name}"
        metadata["annotations"] = {} if chance.is_chosen(3) else {BIND_COMPLETED: "yes"}
    if chance.is_chosen(4):
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
    if chance.is_chosen(6):
        spec["accessModes"] = [chance.pick_option(("ReadWriteOnce", "ReadWriteOncePod"))]
    status = {"phase": "Lost" if chance.is_chosen(4) else "Bound"}
    return {"metadata": metadata, "spec": spec, "status": status}
