"""Makes pod templates, each about one of the things that a pod may ask of a node, or about several."""

from typing import Any

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, some_of
from .clusters import GENERATIONS, GPU, HOSTNAME, RACKS, TAINTS, ZONE, ZONES
from .pods import amounts, container, pod_affinity, port_list, spread_list

RESOURCES, SELECTORS, TOLERATIONS, PORTS = "resources", "selectors", "tolerations", "ports"
SPREAD, APART, TOGETHER, SYMMETRY, VOLUMES, OTHER, MIXED = (
    "spread", "apart", "together", "symmetry", "volumes", "other", "mixed",
)  # fmt: skip
FEATURES = (
    RESOURCES, SELECTORS, TOLERATIONS, PORTS, SPREAD, APART, TOGETHER, SYMMETRY, VOLUMES, OTHER, MIXED,
)  # fmt: skip


def template(chance: Chance, features: frozenset[str], node_names: list[str]) -> Manifest:
    labels = {"app": "web", "version": chance.pick(("1", "2"))}
    if chance.yes(30):
        labels["track"] = chance.pick(("canary", "stable"))
    spec: Manifest = {"containers": [container("c0", {"requests": {"cpu": "100m"}})]}
    if RESOURCES in features:
        _resources(chance, spec)
    if SELECTORS in features:
        _selectors(chance, spec, node_names)
    if TOLERATIONS in features:
        spec["tolerations"] = _tolerations(chance)
    if PORTS in features:
        _ports(chance, spec)
    if SPREAD in features:
        spec["topologySpreadConstraints"] = spread_list(chance)
    kinds = tuple(kind for kind in (APART, TOGETHER) if kind in features)
    if kinds:
        spec.setdefault("affinity", {}).update(pod_affinity(chance, of_template=True, kinds=kinds))
    if VOLUMES in features:
        claims = ["missing"] if chance.yes(5) else some_of(chance, ("data", "logs"), 2)
        spec["volumes"] = [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}} for index, claim in enumerate(claims)
        ]
    if OTHER in features:
        _other(chance, spec, node_names)
    return {"metadata": {"labels": labels}, "spec": spec}


def _resources(chance: Chance, spec: Manifest) -> None:
    spec["containers"] = [_sized(chance, f"c{index}") for index in range(chance.integer(1, 2))]
    if chance.yes(35):
        spec["initContainers"] = [_init(chance, f"i{index}") for index in range(chance.integer(1, 3))]
    if chance.yes(15):
        spec["overhead"] = {"cpu": chance.pick(("10m", "250m"))} | ({"memory": "64Mi"} if chance.yes(50) else {})
    if chance.yes(20):
        spec["resources"] = _of_pod(chance)


def _sized(chance: Chance, name: str) -> Manifest:
    requests, limits = amounts(chance), dict[str, Any]()
    if chance.yes(25):
        limits = {name: amount for name, amount in requests.items() if chance.yes(70)}
        requests = {name: amount for name, amount in requests.items() if name not in limits or chance.yes(50)}
    if chance.yes(20):
        limits[GPU] = chance.pick(("1", "2", "0"))
        if chance.yes(30):
            requests[GPU] = limits[GPU]
    if chance.yes(8):
        limits["hugepages-2Mi"] = chance.pick(("2Mi", "4Mi"))
        requests.setdefault("cpu", "100m")
    resources = {"requests": requests, "limits": limits}
    return container(name, {kind: found for kind, found in resources.items() if found})


def _init(chance: Chance, name: str) -> Manifest:
    made = _sized(chance, name)
    return made | {"restartPolicy": "Always"} if chance.yes(40) else made


def _of_pod(chance: Chance) -> Manifest:
    amounts = {"cpu": chance.pick(("4", "3500m", "8"))} | ({"memory": "4Gi"} if chance.yes(50) else {})
    kind = chance.pick(("requests", "limits", "both"))
    if kind == "both":
        return {"requests": amounts, "limits": amounts}
    return {kind: amounts}


def _selectors(chance: Chance, spec: Manifest, node_names: list[str]) -> None:
    if chance.yes(40):
        spec["nodeSelector"] = {ZONE: chance.pick(ZONES)} if chance.yes(60) else {"disk": chance.pick(("ssd", ""))}
    if "nodeSelector" not in spec or chance.yes(50):
        terms = [_node_term(chance, node_names) for _ in range(chance.integer(1, 2))]
        node_affinity: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if chance.yes(15):
            preference = {"weight": 5, "preference": {"matchExpressions": [_node_expression(chance, node_names)]}}
            node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [preference]
        spec["affinity"] = {"nodeAffinity": node_affinity}


def _node_term(chance: Chance, node_names: list[str]) -> Manifest:
    term: Manifest = {}
    if not chance.yes(20):
        term["matchExpressions"] = [_node_expression(chance, node_names) for _ in range(chance.integer(1, 2))]
    if not term or chance.yes(15):
        if chance.yes(10):
            return term
        operator = chance.pick(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [chance.pick(node_names)]}]
    return term


def _node_expression(chance: Chance, node_names: list[str]) -> Manifest:
    operator = chance.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "gen", "operator": operator, "values": [chance.pick(("5", "0", "12", "007"))]}
    key, values = chance.pick(
        (
            (ZONE, ZONES),
            ("disk", ("ssd", "hdd", "")),
            ("gen", GENERATIONS[:5]),
            ("example.com/rack", RACKS),
            (HOSTNAME, (*node_names, "n0.example.com")),
        )
    )
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    return {"key": key, "operator": operator, "values": some_of(chance, values, 2)}


def _tolerations(chance: Chance) -> Manifests:
    return [_toleration(chance) for _ in range(chance.integer(1, 3))]


def _toleration(chance: Chance) -> Manifest:
    if chance.yes(8):
        return {"operator": "Exists"} | ({"effect": "NoSchedule"} if chance.yes(30) else {})
    taint = chance.pick((*TAINTS, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}))
    toleration: Manifest = {"key": taint["key"]}
    if chance.yes(40):
        toleration["operator"] = "Exists"
    else:
        if chance.yes(30):
            toleration["operator"] = "Equal"
        toleration["value"] = chance.pick((taint.get("value", ""), "other"))
    if chance.yes(60):
        toleration["effect"] = chance.pick((taint["effect"], "NoExecute", "PreferNoSchedule"))
    if toleration.get("effect") == "NoExecute" and chance.yes(50):
        toleration["tolerationSeconds"] = 60
    return toleration


def _ports(chance: Chance, spec: Manifest) -> None:
    if chance.yes(15):
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": chance.pick((80, 81, 9000))}]
        return
    spec["containers"][0]["ports"] = port_list(chance, 2)
    if chance.yes(20):
        sidecar = container("s0", {"requests": {"cpu": "10m"}})
        sidecar["ports"] = [{"containerPort": 8443, "hostPort": 443}]
        spec["initContainers"] = [sidecar | ({"restartPolicy": "Always"} if chance.yes(60) else {})]


def _other(chance: Chance, spec: Manifest, node_names: list[str]) -> None:
    kind = chance.integer(0, 3)
    if kind == 0:
        spec["nodeName"] = chance.pick(node_names)
    elif kind == 1:
        spec["schedulerName"] = "another"
    elif kind == 2:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]
    else:
        spec["runtimeClassName"] = "gvisor"
        spec["overhead"] = {"cpu": "100m"}
