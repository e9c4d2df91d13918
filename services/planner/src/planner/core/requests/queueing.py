"""Orders waiting requests by the priority of the workload that each is about."""

from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.manifests.policy import PRIORITY_MAX
from planner.core.manifests.request import read_manifests
from spillway.api import ApplyRequest, DeleteRequest, DisownRequest, MigrateRequest, RequestError, ScaleRequest
from spillway.feasibility.cluster_view import WorkloadKey

QueuedRequest = ApplyRequest | ScaleRequest | DeleteRequest | MigrateRequest | DisownRequest


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a request in the queue.

    priority: the priority of its workload; the highest is decided first.
    about: its workload. No later request about this workload is decided before this one.
    key: its idempotency key. Two calls with one key are the same request.
    """

    priority: int = 0
    about: WorkloadKey | None = None
    key: str = ""


ANY = QueuePlace()
FIRST = QueuePlace(PRIORITY_MAX + 1)
"""The place of a request that sets a brake. It comes before all other requests."""


def queue_place_of(state: PlannerState, request: QueuedRequest) -> QueuePlace:
    """Returns a request's place. An Apply has the priority of its policy, others that of the declared workload."""
    if isinstance(request, ApplyRequest):
        try:
            declaration = read_manifests(request.manifests)
        except RequestError:  # The request is refused when it is decided.
            return ANY
        about = (declaration.namespace, declaration.name)
        return QueuePlace(declaration.policy.priority, about, request.idempotency_key)
    about = (request.namespace or "default", request.name)
    known = state.workloads.get(about)
    priority = known.declared.policy.priority if known is not None else 0
    return QueuePlace(priority, about, request.idempotency_key)


def declaration_bytes_written(state: PlannerState, request: QueuedRequest) -> int:
    """Returns the bytes of the declaration that a request writes into the log: each about a workload writes it again.

    An Apply writes its manifests, which may be much longer than its text: YAML can say a value once and use it often.
    It is 0 for a request that is refused, or whose answer is kept and that writes nothing.
    """
    if isinstance(request, ApplyRequest):
        try:
            declaration = read_manifests(request.manifests)
        except RequestError:  # The request is refused when it is decided.
            return 0
        if _is_answer_kept(state, (declaration.namespace, declaration.name), request.idempotency_key):
            return 0
        return len(declaration.manifest) + sum(len(along.manifest) for along in declaration.dependencies)
    key = (request.namespace or "default", request.name)
    return 0 if _is_answer_kept(state, key, request.idempotency_key) else state.declared.declaration_bytes_of(key)


def _is_answer_kept(state: PlannerState, key: WorkloadKey, idempotency_key: str) -> bool:
    known = state.workloads.get(key)
    return known is not None and any(idempotency_key == answer.key for answer in known.declared.answered)
