"""Makes pod templates. Each one has one of the features by which a pod selects nodes, or several of them."""

from typing import Any

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, pick_at_least_one
from .clusters import GENERATIONS, GPU, HOSTNAME, RACKS, TAINTS, ZONE, ZONES
from .pods import make_container, make_host_ports, make_pod_affinity, make_requests, make_spread_constraints

RESOURCES, SELECTORS, TOLERATIONS, PORTS = "resources", "selectors", "tolerations", "ports"
SPREAD, APART, TOGETHER, SYMMETRY, VOLUMES, OTHER, MIXED = (
    "spread", "apart", "together", "symmetry", "volumes", "other", "mixed",
)  # fmt: skip
FEATURES = (
    RESOURCES, SELECTORS, TOLERATIONS, PORTS, SPREAD, APART, TOGETHER, SYMMETRY, VOLUMES, OTHER, MIXED,
)  # fmt: skip


def make_template(chance: Chance, features: frozenset[str], node_names: list[str]) -> Manifest:
    labels = {"app": "web", "version": chance.pick_option(("1", "2"))}
    if chance.is_chosen(30):
        labels["track"] = chance.pick_option(("canary", "stable"))
    spec: Manifest = {"containers": [make_container("c0", {"requests": {"cpu": "100m"}})]}
    if RESOURCES in features:
        _add_resources(chance, spec)
    if SELECTORS in features:
        _add_node_selectors(chance, spec, node_names)
    if TOLERATIONS in features:
        spec["tolerations"] = _make_tolerations(chance)
    if PORTS in features:
        _add_host_ports(chance, spec)
    if SPREAD in features:
        spec["topologySpreadConstraints"] = make_spread_constraints(chance)
    kinds = tuple(kind for kind in (APART, TOGETHER) if kind in features)
    if kinds:
        spec.setdefault("affinity", {}).update(make_pod_affinity(chance, of_template=True, kinds=kinds))
    if VOLUMES in features:
        claims = ["missing"] if chance.is_chosen(5) else pick_at_least_one(chance, ("data", "logs"), 2)
        spec["volumes"] = [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}} for index, claim in enumerate(claims)
        ]
    if OTHER in features:
        _add_other_feature(chance, spec, node_names)
    return {"metadata": {"labels": labels}, "spec": spec}


def _add_resources(chance: Chance, spec: Manifest) -> None:
    spec["containers"] = [_make_sized_container(chance, f"c{index}") for index in range(chance.pick_integer(1, 2))]
    if chance.is_chosen(35):
        spec["initContainers"] = [
            _make_init_container(chance, f"i{index}") for index in range(chance.pick_integer(1, 3))
        ]
    if chance.is_chosen(15):
        spec["overhead"] = {"cpu": chance.pick_option(("10m", "250m"))} | (
            {"memory": "64Mi"} if chance.is_chosen(50) else {}
        )
    if chance.is_chosen(20):
        spec["resources"] = _make_pod_resources(chance)


def _make_sized_container(chance: Chance, name: str) -> Manifest:
    requests, limits = make_requests(chance), dict[str, Any]()
    if chance.is_chosen(25):
        limits = {name: amount for name, amount in requests.items() if chance.is_chosen(70)}
        requests = {name: amount for name, amount in requests.items() if name not in limits or chance.is_chosen(50)}
    if chance.is_chosen(20):
        limits[GPU] = chance.pick_option(("1", "2", "0"))
        if chance.is_chosen(30):
            requests[GPU] = limits[GPU]
    if chance.is_chosen(8):
        limits["hugepages-2Mi"] = chance.pick_option(("2Mi", "4Mi"))
        requests.setdefault("cpu", "100m")
    resources = {"requests": requests, "limits": limits}
    return make_container(name, {kind: found for kind, found in resources.items() if found})


def _make_init_container(chance: Chance, name: str) -> Manifest:
    made = _make_sized_container(chance, name)
    return made | {"restartPolicy": "Always"} if chance.is_chosen(40) else made


def _make_pod_resources(chance: Chance) -> Manifest:
    amounts = {"cpu": chance.pick_option(("4", "3500m", "8"))} | ({"memory": "4Gi"} if chance.is_chosen(50) else {})
    kind = chance.pick_option(("requests", "limits", "both"))
    if kind == "both":
        return {"requests": amounts, "limits": amounts}
    return {kind: amounts}


def _add_node_selectors(chance: Chance, spec: Manifest, node_names: list[str]) -> None:
    if chance.is_chosen(40):
        spec["nodeSelector"] = (
            {ZONE: chance.pick_option(ZONES)} if chance.is_chosen(60) else {"disk": chance.pick_option(("ssd", ""))}
        )
    if "nodeSelector" not in spec or chance.is_chosen(50):
        terms = [_make_node_term(chance, node_names) for _ in range(chance.pick_integer(1, 2))]
        node_affinity: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if chance.is_chosen(15):
            preference = {"weight": 5, "preference": {"matchExpressions": [_make_node_expression(chance, node_names)]}}
            node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [preference]
        spec["affinity"] = {"nodeAffinity": node_affinity}


def _make_node_term(chance: Chance, node_names: list[str]) -> Manifest:
    term: Manifest = {}
    if not chance.is_chosen(20):
        term["matchExpressions"] = [_make_node_expression(chance, node_names) for _ in range(chance.pick_integer(1, 2))]
    if not term or chance.is_chosen(15):
        if chance.is_chosen(10):
            return term
        operator = chance.pick_option(("In", "NotIn"))
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [chance.pick_option(node_names)]}
        ]
    return term


def _make_node_expression(chance: Chance, node_names: list[str]) -> Manifest:
    operator = chance.pick_option(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "gen", "operator": operator, "values": [chance.pick_option(("5", "0", "12", "007"))]}
    key, values = chance.pick_option(
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
    return {"key": key, "operator": operator, "values": pick_at_least_one(chance, values, 2)}


def _make_tolerations(chance: Chance) -> Manifests:
    return [_make_toleration(chance) for _ in range(chance.pick_integer(1, 3))]


def _make_toleration(chance: Chance) -> Manifest:
    if chance.is_chosen(8):
        return {"operator": "Exists"} | ({"effect": "NoSchedule"} if chance.is_chosen(30) else {})
    taint = chance.pick_option((*TAINTS, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}))
    toleration: Manifest = {"key": taint["key"]}
    if chance.is_chosen(40):
        toleration["operator"] = "Exists"
    else:
        if chance.is_chosen(30):
            toleration["operator"] = "Equal"
        toleration["value"] = chance.pick_option((taint.get("value", ""), "other"))
    if chance.is_chosen(60):
        toleration["effect"] = chance.pick_option((taint["effect"], "NoExecute", "PreferNoSchedule"))
    if toleration.get("effect") == "NoExecute" and chance.is_chosen(50):
        toleration["tolerationSeconds"] = 60
    return toleration


def _add_host_ports(chance: Chance, spec: Manifest) -> None:
    if chance.is_chosen(15):
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": chance.pick_option((80, 81, 9000))}]
        return
    spec["containers"][0]["ports"] = make_host_ports(chance, 2)
    if chance.is_chosen(20):
        sidecar = make_container("s0", {"requests": {"cpu": "10m"}})
        sidecar["ports"] = [{"containerPort": 8443, "hostPort": 443}]
        spec["initContainers"] = [sidecar | ({"restartPolicy": "Always"} if chance.is_chosen(60) else {})]


def _add_other_feature(chance: Chance, spec: Manifest, node_names: list[str]) -> None:
    kind = chance.pick_integer(0, 3)
    if kind == 0:
        spec["nodeName"] = chance.pick_option(node_names)
    elif kind == 1:
        spec["schedulerName"] = "another"
    elif kind == 2:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]
    else:
        spec["runtimeClassName"] = "gvisor"
        spec["overhead"] = {"cpu": "100m"}
