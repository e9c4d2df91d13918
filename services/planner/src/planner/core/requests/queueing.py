"""Which of the requests that wait is decided first: by the priority of the workload that each is about."""

from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.manifests.policy import PRIORITY_MAX
from planner.core.manifests.request import read_manifests
from spillway.api import ApplyRequest, DeleteRequest, DisownRequest, MigrateRequest, RequestError, ScaleRequest
from spillway.feasibility.cluster_view import WorkloadKey


@dataclass(frozen=True, slots=True)
class Place:
    """Of a request among those that wait. about: its workload, of which no later request is decided before it. key: its
    idempotency key; with the same one it is the same request."""

    priority: int = 0
    about: WorkloadKey | None = None
    key: str = ""


ANY = Place()
FIRST = Place(PRIORITY_MAX + 1)
"""Of who sets a brake: that waits for nobody's replicas."""


def place_of(
    state: PlannerState, request: ApplyRequest | ScaleRequest | DeleteRequest | MigrateRequest | DisownRequest
) -> Place:
    """By the policy that is applied; what else names a workload goes by the policy that this has."""
    if isinstance(request, ApplyRequest):
        try:
            declaration = read_manifests(request.manifests)
        except RequestError:  # It is refused when it is decided.
            return ANY
        about = (declaration.namespace, declaration.name)
        return Place(declaration.policy.priority, about, request.idempotency_key)
    about = (request.namespace or "default", request.name)
    known = state.workloads.get(about)
    priority = known.declared.policy.priority if known is not None else 0
    return Place(priority, about, request.idempotency_key)
