"""Makes the parts of pods: amounts, containers, host ports, selectors, affinity between pods, spread."""

from typing import Any

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, pick_at_least_one, pick_at_most

NAMESPACES = ("default", "team-a", "team-b")
USUAL_NAMESPACES = ("default", "default", "default", "team-a", "team-b")
APPS = ("web", "db", "cache")
TOPOLOGIES = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack")
HASH = "pod-template-hash"
CPU = ("500m", "100m", "1", "250m", "0.3", "1.5", "1", "1001m", "333333u")
MEMORY = ("256Mi", "1Gi", "128974848", "129e6", "129M", "0.1Gi", "1500m", "300Mi", "2Ei")


def make_container(name: str, resources: Manifest) -> Manifest:
    return {"name": name, "image": "registry.example/app:1", "resources": resources}


def make_requests(chance: Chance, small: bool = False) -> dict[str, Any]:
    """Makes the requests of one container. small: True for at most two usual amounts."""
    found: dict[str, Any] = {}
    if chance.is_chosen(80):
        found["cpu"] = chance.pick_option(CPU[:5] if small else CPU)
    if chance.is_chosen(40):
        found["memory"] = chance.pick_option(MEMORY[:1] if small else MEMORY)
    if not small and chance.is_chosen(15):
        found["ephemeral-storage"] = chance.pick_option(("100Mi", "1Gi", "0"))
    return found


def make_host_ports(chance: Chance, most: int) -> Manifests:
    ports = []
    for number in pick_at_least_one(chance, (80, 81, 443), most):
        port: Manifest = {"containerPort": 8000 + number, "hostPort": number}
        if chance.is_chosen(30):
            port["protocol"] = chance.pick_option(("UDP", "TCP", "SCTP"))
        if chance.is_chosen(30):
            port["hostIP"] = chance.pick_option(("10.0.0.1", "0.0.0.0", "127.0.0.1", "::"))
        ports.append(port)
    return ports


def make_label_selector(chance: Chance) -> Manifest:
    """Makes a label selector over app, version and track. An empty one matches all pods."""
    if chance.is_chosen(60):
        return {"matchLabels": {"app": chance.pick_option(APPS)}}
    if chance.is_chosen(8):
        return {}
    expressions = []
    for key in pick_at_least_one(chance, ("app", "version", "track"), 2):
        operator = chance.pick_option(("In", "NotIn", "Exists", "DoesNotExist"))
        values = (*APPS, "1", "2") if operator in ("In", "NotIn") else ()
        expression: Manifest = {"key": key, "operator": operator}
        if values:
            expression["values"] = pick_at_least_one(chance, values, 2)
        expressions.append(expression)
    return {"matchExpressions": expressions}


def make_pod_affinity(chance: Chance, of_template: bool, kinds: tuple[str, ...] = ("apart", "together")) -> Manifest:
    """Makes pod affinity or anti-affinity.

    of_template: True for a template, whose matchLabelKeys the API server will add to the selector. A running pod has
    them in the selector already.
    """
    affinity: Manifest = {}
    kind = chance.pick_option(kinds)
    for name in (kind,) if chance.is_chosen(75) else kinds:
        terms = [_make_affinity_term(chance, of_template) for _ in range(1 + (chance.pick_integer(0, 3) == 3))]
        where = "podAntiAffinity" if name == "apart" else "podAffinity"
        affinity[where] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if chance.is_chosen(10):
            preferred = [{"weight": 10, "podAffinityTerm": _make_affinity_term(chance, of_template)}]
            affinity[where]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return affinity


def _make_affinity_term(chance: Chance, of_template: bool) -> Manifest:
    term: Manifest = {"topologyKey": chance.pick_option(TOPOLOGIES)}
    if of_template and chance.is_chosen(50):
        term["labelSelector"] = {"matchLabels": {"app": "web"}}
    elif not chance.is_chosen(4):
        term["labelSelector"] = make_label_selector(chance)
    if chance.is_chosen(15):
        term["namespaces"] = pick_at_least_one(chance, NAMESPACES, 2)
    if chance.is_chosen(15):
        term["namespaceSelector"] = chance.pick_option(
            ({"matchLabels": {"team": "red"}}, {}, {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})
        )
    # The API server refuses a key that the selector names, too.
    if of_template and "labelSelector" in term and "track" not in str(term["labelSelector"]) and chance.is_chosen(12):
        term[chance.pick_option(("matchLabelKeys", "mismatchLabelKeys"))] = pick_at_least_one(
            chance, (HASH, "track", "absent"), 2
        )
    return term


def make_spread_constraints(chance: Chance) -> Manifests:
    keys = pick_at_least_one(chance, TOPOLOGIES, 2)
    return [_make_spread_constraint(chance, key) for key in keys]


def _make_spread_constraint(chance: Chance, key: str) -> Manifest:
    constraint: Manifest = {
        "maxSkew": chance.pick_integer(1, 3),
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway" if chance.is_chosen(12) else "DoNotSchedule",
    }
    own = chance.pick_integer(0, 9)
    if own < 7:
        constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    elif own < 9:
        constraint["labelSelector"] = make_label_selector(chance)
    if chance.is_chosen(20) and constraint["whenUnsatisfiable"] == "DoNotSchedule":
        constraint["minDomains"] = chance.pick_integer(1, 4)
    if chance.is_chosen(30):
        constraint["nodeAffinityPolicy"] = chance.pick_option(("Ignore", "Honor"))
    if chance.is_chosen(30):
        constraint["nodeTaintsPolicy"] = chance.pick_option(("Honor", "Ignore"))
    if chance.is_chosen(12):
        named = str(constraint.get("labelSelector"))
        keys = [key for key in (HASH, "version", "track", "absent") if key not in named]
        constraint["matchLabelKeys"] = pick_at_most(chance, keys, 2)
    return constraint
