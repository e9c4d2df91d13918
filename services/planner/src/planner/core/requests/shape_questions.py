"""Makes the questions to clusters about a new template's admitted shape, and chooses whose answers are awaited."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.manifests.policy import bits_of_tiers
from planner.core.manifests.request import Declaration, read_manifests
from planner.core.requests import decisions
from planner.core.requests.decisions import UndecidedRequest
from spillway.api import ApplyRequest, RequestError
from spillway.events import PHASE_ACTIVE, ShapeAsked
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ShapeQuestion:
    """A question to clusters. awaited: the clusters that replicas would go to now; their answers are waited for."""

    event: ShapeAsked
    awaited: frozenset[str]


Planned = dict[object, frozenset[str]]
"""The clusters that replicas would go to. The key is from _plan_key(), so that equal workloads share a plan."""


def template_digest(request: ApplyRequest) -> str:
    """Returns the digest of the request's template; empty for an unreadable request, which is refused later."""
    try:
        return read_manifests(request.manifests).shape.template
    except RequestError:
        return ""


def shape_questions(state: PlannerState, requests: Iterable[ApplyRequest], moment: Moment) -> Iterator[ShapeQuestion]:
    """Yields the questions of several requests. Of equal new workloads only the first is planned, to save time.

    The labels of these workloads may differ. That affects only the choice of the awaited clusters.
    """
    planned: Planned = {}
    found = (shape_question(state, request, moment, planned) for request in requests)
    return (asked for asked in found if asked is not None)


def shape_question(
    state: PlannerState, request: ApplyRequest, moment: Moment, planned: Planned | None = None
) -> ShapeQuestion | None:
    """Returns the question about a request's template, or None when no cluster needs to be asked.

    None is returned when the template is known, the request will be refused, no cluster can be asked, or the template
    is too large for a record. All clusters that the policy may use are asked, because room may appear there later.
    planned: results of other questions at this moment.
    """
    declaration = read_manifests(request.manifests)
    digest = declaration.shape.template
    clusters = _clusters_to_ask(state, declaration, moment.now)
    if state.admitted.is_known(digest) or not clusters:
        return None
    awaited = _awaited_clusters(state, declaration, clusters, moment, {} if planned is None else planned)
    if awaited is None:
        return None
    pod = json.dumps(json.loads(declaration.manifest)["spec"]["template"]).encode()
    if len(pod) > MANIFEST_BYTES_MAX:
        return None
    return ShapeQuestion(ShapeAsked(digest, declaration.namespace, declaration.name, clusters, pod), awaited)


def unheard_clusters_by_template(
    state: PlannerState, requests: Iterable[ApplyRequest], moment: Moment
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields (template digest, clusters): clusters that replicas would go to now and that have not answered yet."""
    planned: Planned = {}
    for request in requests:
        declaration = read_manifests(request.manifests)
        awaited = _awaited_clusters(
            state, declaration, _clusters_to_ask(state, declaration, moment.now), moment, planned
        )
        yield declaration.shape.template, awaited or frozenset()


def _awaited_clusters(
    state: PlannerState, declaration: Declaration, clusters: tuple[str, ...], moment: Moment, planned: Planned
) -> frozenset[str] | None:
    """Returns the clusters that replicas would go to and whose answer is missing; None if the request is refused.

    planned: as in shape_question().
    """
    alike = _plan_key(state, declaration)
    try:
        if alike not in planned:
            planned[alike] = decisions.find_used_clusters(state, declaration, moment)
        used = planned[alike]
    except UndecidedRequest:
        used = frozenset(clusters)
    except RequestError:
        return None
    said = state.admitted.clusters_with_record(declaration.shape.template)
    return used & set(clusters) - state.admitted.silent.keys() - said


def _plan_key(state: PlannerState, declaration: Declaration) -> object:
    """Returns a key that is equal for new workloads that differ at most in their labels, so that one plan serves all.

    A workload with dependencies, or a declared one, gets a key of its own.
    """
    if declaration.dependencies or (declaration.namespace, declaration.name) in state.workloads:
        return object()
    altered = state.admitted.altered_shapes(declaration.shape.template)
    return declaration.kind, declaration.replicas, declaration.shape, altered, declaration.policy


def _clusters_to_ask(state: PlannerState, declaration: Declaration, now: float) -> tuple[str, ...]:
    """Returns the clusters of the policy's tiers that take replicas, are fresh, and have a propagator."""
    clusters = state.joined_clusters()
    selected = 0
    for bits in bits_of_tiers(declaration.policy.tiers, clusters.cluster_index):
        selected |= bits
    return tuple(
        joined.cluster
        for joined in clusters
        if clusters.cluster_index.bit_of(joined.cluster) & selected
        and joined.cluster in state.admitted.held
        and joined.phase == PHASE_ACTIVE
        and state.is_fresh(joined.cluster, now)
    )
