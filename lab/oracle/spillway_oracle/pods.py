"""Makes the parts of pods: amounts, containers, host ports, selectors, affinity between pods, spread."""

from typing import Any

from spillway.kubernetes.objects import Manifest, Manifests

from .chance import Chance, some, some_of

NAMESPACES = ("default", "team-a", "team-b")
USUAL_NAMESPACES = ("default", "default", "default", "team-a", "team-b")
APPS = ("web", "db", "cache")
TOPOLOGIES = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack")
HASH = "pod-template-hash"
CPU = ("500m", "100m", "1", "250m", "0.3", "1.5", "1", "1001m", "333333u")
MEMORY = ("256Mi", "1Gi", "128974848", "129e6", "129M", "0.1Gi", "1500m", "300Mi", "2Ei")


def container(name: str, resources: Manifest) -> Manifest:
    return {"name": name, "image": "registry.example/app:1", "resources": resources}


def amounts(chance: Chance, small: bool = False) -> dict[str, Any]:
    """Requests of one container. small: one or two ordinary ones."""
    found: dict[str, Any] = {}
    if chance.yes(80):
        found["cpu"] = chance.pick(CPU[:5] if small else CPU)
    if chance.yes(40):
        found["memory"] = chance.pick(MEMORY[:1] if small else MEMORY)
    if not small and chance.yes(15):
        found["ephemeral-storage"] = chance.pick(("100Mi", "1Gi", "0"))
    return found


def port_list(chance: Chance, most: int) -> Manifests:
    ports = []
    for number in some_of(chance, (80, 81, 443), most):
        port: Manifest = {"containerPort": 8000 + number, "hostPort": number}
        if chance.yes(30):
            port["protocol"] = chance.pick(("UDP", "TCP", "SCTP"))
        if chance.yes(30):
            port["hostIP"] = chance.pick(("10.0.0.1", "0.0.0.0", "127.0.0.1", "::"))
        ports.append(port)
    return ports


def selector(chance: Chance) -> Manifest:
    """A label selector over app, version and track; the empty one matches all pods."""
    if chance.yes(60):
        return {"matchLabels": {"app": chance.pick(APPS)}}
    if chance.yes(8):
        return {}
    expressions = []
    for key in some_of(chance, ("app", "version", "track"), 2):
        operator = chance.pick(("In", "NotIn", "Exists", "DoesNotExist"))
        values = (*APPS, "1", "2") if operator in ("In", "NotIn") else ()
        expression: Manifest = {"key": key, "operator": operator}
        if values:
            expression["values"] = some_of(chance, values, 2)
        expressions.append(expression)
    return {"matchExpressions": expressions}


def pod_affinity(chance: Chance, of_template: bool, kinds: tuple[str, ...] = ("apart", "together")) -> Manifest:
    """of_template: the API server still joins its matchLabelKeys; pods that run have them in the selector already."""
    affinity: Manifest = {}
    kind = chance.pick(kinds)
    for name in (kind,) if chance.yes(75) else kinds:
        terms = [_term(chance, of_template) for _ in range(1 + (chance.integer(0, 3) == 3))]
        where = "podAntiAffinity" if name == "apart" else "podAffinity"
        affinity[where] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if chance.yes(10):
            preferred = [{"weight": 10, "podAffinityTerm": _term(chance, of_template)}]
            affinity[where]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return affinity


def _term(chance: Chance, of_template: bool) -> Manifest:
    term: Manifest = {"topologyKey": chance.pick(TOPOLOGIES)}
    if of_template and chance.yes(50):
        term["labelSelector"] = {"matchLabels": {"app": "web"}}
    elif not chance.yes(4):
        term["labelSelector"] = selector(chance)
    if chance.yes(15):
        term["namespaces"] = some_of(chance, NAMESPACES, 2)
    if chance.yes(15):
        term["namespaceSelector"] = chance.pick(
            ({"matchLabels": {"team": "red"}}, {}, {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})
        )
    # A key that the selector names too is refused.
    if of_template and "labelSelector" in term and "track" not in str(term["labelSelector"]) and chance.yes(12):
        term[chance.pick(("matchLabelKeys", "mismatchLabelKeys"))] = some_of(chance, (HASH, "track", "absent"), 2)
    return term


def spread_list(chance: Chance) -> Manifests:
    keys = some_of(chance, TOPOLOGIES, 2)
    return [_constraint(chance, key) for key in keys]


def _constraint(chance: Chance, key: str) -> Manifest:
    constraint: Manifest = {
        "maxSkew": chance.integer(1, 3),
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway" if chance.yes(12) else "DoNotSchedule",
    }
    own = chance.integer(0, 9)
    if own < 7:
        constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    elif own < 9:
        constraint["labelSelector"] = selector(chance)
    if chance.yes(20) and constraint["whenUnsatisfiable"] == "DoNotSchedule":
        constraint["minDomains"] = chance.integer(1, 4)
    if chance.yes(30):
        constraint["nodeAffinityPolicy"] = chance.pick(("Ignore", "Honor"))
    if chance.yes(30):
        constraint["nodeTaintsPolicy"] = chance.pick(("Honor", "Ignore"))
    if chance.yes(12):
        named = str(constraint.get("labelSelector"))
        keys = [key for key in (HASH, "version", "track", "absent") if key not in named]
        constraint["matchLabelKeys"] = some(chance, keys, 2)
    return constraint
