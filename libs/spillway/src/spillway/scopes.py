"""The scopes of brakes by name: fleet, cluster/<name>, workload/<namespace>/<name>."""

import re
from dataclasses import dataclass
from typing import Final

from spillway.api import invalid_argument_error

FLEET_SCOPE: Final = "fleet"
SCOPE_KINDS: Final = ("fleet", "cluster", "workload")
_EXPECTED = "fleet, cluster/<name> or workload/<namespace>/<name>"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a brake: a cluster, a workload, or the fleet if neither is set."""

    cluster: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.cluster:
            return cluster_scope(self.cluster)
        return workload_scope(self.namespace, self.name) if self.name else FLEET_SCOPE


def cluster_scope(cluster: str) -> str:
    return f"cluster/{cluster}"


def workload_scope(namespace: str, name: str) -> str:
    return f"workload/{namespace}/{name}"


def read_scope(text: str) -> Scope:
    """Returns the scope that a text names. Raises RequestError (INVALID_ARGUMENT) when it names none."""
    kind, *names = text.split("/")
    if all(_NAME.fullmatch(name) for name in names):
        match kind, *names:
            case ["fleet"]:
                return Scope()
            case ["cluster", name]:
                return Scope(cluster=name)
            case ["workload", namespace, name]:
                return Scope(namespace=namespace, name=name)
    raise invalid_argument_error("scope", text, _EXPECTED)
