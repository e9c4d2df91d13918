"""The rights of each service's account in a cluster. deploy/rbac is generated from this table. Pure.

The table has the form of Kubernetes' rbac.authorization.k8s.io/v1. A service needs no other right: in the path tests
and the simulation each account has only these rights.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spillway.kubernetes.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODE_LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICASETS,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFULSETS,
    VOLUME_CLAIMS,
    VOLUMES,
    Kind,
)
from spillway.kubernetes.pod_metrics import NODE_METRICS, POD_METRICS


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource of an API group; "" is the core group. resource: for example `pods` or `pods/log`.

    namespace: the only namespace of the right; empty: all namespaces.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of one API group.

    without: the effect on the service's work if these rights are missing; empty: it cannot work without them.
    namespace: the only namespace of the rights; empty: all namespaces.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    without: str = ""
    namespace: str = ""

    def rights(self) -> tuple[Right, ...]:
        return tuple(Right(verb, self.group, name, self.namespace) for name in self.resources for verb in self.verbs)


@dataclass(frozen=True, slots=True)
class AccountRole:
    """The rights that a service's account needs in clusters that it uses in one way, for example to lend nodes."""

    name: str
    service: str
    clusters: str  # A text for people: the clusters that the service uses in this way.
    rules: tuple[Rule, ...]

    def rights(self) -> frozenset[Right]:
        return frozenset(right for rule in self.rules for right in rule.rights())

    def effect_by_optional_right(self) -> Mapping[Right, str]:
        """Returns, for each right that the service can do without, the effect of its absence."""
        return {right: rule.without for rule in self.rules if rule.without for right in rule.rights()}


def _make_rules(
    verbs: str, *kinds: Kind, why: str, without: str = "", part: str = "", namespace: str = ""
) -> tuple[Rule, ...]:
    """Returns one rule for each API group, in the kinds' order. verbs: separated by blanks. part: a subresource."""
    resources: dict[str, list[str]] = {}
    for kind in kinds:
        resources.setdefault(kind.group, []).append(f"{kind.plural}/{part}" if part else kind.plural)
    given = tuple(verbs.split())
    return tuple(Rule(group, tuple(names), given, why, without, namespace) for group, names in resources.items())


_NETWORK_POLICIES: Final = Kind("networking.k8s.io", "v1", "networkpolicies", object)
_WRITE: Final = "get list watch create patch delete"
_ONE_BY_ONE: Final = "each pod of a node that goes back is deleted with a request of its own, and returns take longer"

SNAPSHOT: Final = AccountRole(
    "snapshot",
    "snapshot",
    "every cluster",
    (
        *_make_rules(
            "list watch",
            NODES,
            PODS,
            NAMESPACES,
            RESOURCE_QUOTAS,
            DEPLOYMENTS,
            STATEFULSETS,
            REPLICASETS,
            JOBS,
            why="what a cluster can hold, and which pods are counted there",
        ),
        *_make_rules(
            "list watch",
            VOLUME_CLAIMS,
            VOLUMES,
            why="on which nodes the volumes of claims let pods run",
            without="replicas with claims are placed as if their volumes were everywhere; answers say so",
        ),
        *_make_rules(
            "list",
            POD_METRICS,
            why="what pods of scaled workloads use",
            without="these pods have no samples; the topic pods says why",
        ),
    ),
)

PROPAGATOR: Final = AccountRole(
    "propagator",
    "propagator",
    "every cluster",
    (
        *_make_rules(
            _WRITE,
            DEPLOYMENTS,
            STATEFULSETS,
            JOBS,
            CONFIG_MAPS,
            SERVICES,
            why="what placements say, and what goes with it",
        ),
        *_make_rules("get create", NAMESPACES, why="those that workloads need"),
        *_make_rules(
            "list",
            SECRETS,
            why="whether a Secret that a template names exists: names alone are asked for, but RBAC cannot say so",
            without="a missing one is not noticed: pods are made there, and do not start",
        ),
        *_make_rules(
            "get",
            SERVICE_ACCOUNTS,
            VOLUME_CLAIMS,
            PRIORITY_CLASSES,
            RUNTIME_CLASSES,
            why="whether the objects that a template names exist",
            without="a missing one is not noticed: replicas that get no pods, or no node, are placed elsewhere",
        ),
        *_make_rules(
            "list",
            HORIZONTAL_POD_AUTOSCALERS,
            why="who else scales a workload",
            without="another scaler is noticed by the fields that it manages alone; nothing is adopted",
        ),
        *_make_rules(
            "create",
            PODS,
            why="dry runs of a template, which alone tell what admission makes of it; RBAC cannot say dry run",
            without="replicas are planned as declared; answers say so",
        ),
    ),
)

BRIDGE_OWNER: Final = AccountRole(
    "vk-bridge-owner",
    "vk-bridge",
    "clusters that lend nodes",
    (
        *_make_rules("get list watch patch", NODES, why="which are idle; the mark of a loan"),
        *_make_rules(_WRITE, PODS, why="the real pods of pool pods"),
        *_make_rules("deletecollection", PODS, why="those of a node with one request", without=_ONE_BY_ONE),
        *_make_rules("get", PODS, part="log", why="logs of real pods", without="logs of pool pods are refused"),
        *_make_rules(
            "get list create patch delete",
            CONFIG_MAPS,
            SECRETS,
            why="copies of what pool pods refer to, in namespaces spillway-lent-…",
        ),
        *_make_rules("get list create patch delete", NAMESPACES, why="namespaces spillway-lent-…"),
        *_make_rules("list", VOLUME_CLAIMS, why="that nothing of others is in such a namespace that is removed"),
        *_make_rules("create", _NETWORK_POLICIES, why="no way into pods of a pool"),
        *_make_rules(
            "list",
            NODE_METRICS,
            why="what nodes use, for the idle report",
            without="the report knows requests alone, and says so",
        ),
    ),
)

BRIDGE_POOL: Final = AccountRole(
    "vk-bridge-pool",
    "vk-bridge",
    "pools that lent nodes appear in",
    (
        *_make_rules("get list watch create patch delete", NODES, why="virtual nodes"),
        *_make_rules("patch", NODES, PODS, part="status", why="how virtual nodes and the pods on them are"),
        *_make_rules("get list watch delete", PODS, why="pods on virtual nodes, and their end"),
        *_make_rules("deletecollection", PODS, why="those of a node with one request", without=_ONE_BY_ONE),
        *_make_rules("get", CONFIG_MAPS, SECRETS, why="what pods on virtual nodes refer to"),
        *_make_rules("list watch", POD_DISRUPTION_BUDGETS, why="how many pods on virtual nodes may go"),
        *_make_rules("create patch", LEASES, namespace=NODE_LEASES, why="heartbeats of virtual nodes"),
    ),
)

ROLES: Final = (SNAPSHOT, PROPAGATOR, BRIDGE_OWNER, BRIDGE_POOL)


def has_right(rights: Iterable[Right], asked: Right) -> bool:
    """Returns whether `rights` contain the right `asked`, either for all namespaces or for its namespace."""
    everywhere = Right(asked.verb, asked.group, asked.resource)
    return any(right in (asked, everywhere) for right in rights)
