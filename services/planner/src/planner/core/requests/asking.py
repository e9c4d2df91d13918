"""Which clusters are asked what they make of a template that was never seen, and which of them are waited for."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.manifests.policy import in_tier
from planner.core.manifests.request import Declaration, read_manifests
from planner.core.requests import decisions
from planner.core.requests.decisions import Undecided
from spillway.api import ApplyRequest, RequestError
from spillway.events import PHASE_ACTIVE, ShapeAsked
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Asked:
    """awaited: the clusters that replicas would go to as things are."""

    event: ShapeAsked
    awaited: frozenset[str]


Planned = dict[object, frozenset[str]]
"""Clusters that replicas would go to, by what is alike."""


def digest_of(request: ApplyRequest) -> str:
    """Of its template; empty for a request that cannot be read, which is refused later on."""
    try:
        return read_manifests(request.manifests).shape.template
    except RequestError:
        return ""


def questions(state: PlannerState, requests: Iterable[ApplyRequest], moment: Moment) -> Iterator[Asked]:
    """As question, of each where there is one. Of new workloads that ask for the same the first one is planned alone:
    that their labels may make a difference matters for nothing but who is waited for.
    """
    planned: Planned = {}
    found = (question(state, request, moment, planned) for request in requests)
    return (asked for asked in found if asked is not None)


def question(
    state: PlannerState, request: ApplyRequest, moment: Moment, planned: Planned | None = None
) -> Asked | None:
    """None when there is nobody to ask, or nothing to wait for: the template is known, or the request is refused; or
    the template is too large to be asked about: others ask in the same transaction.

    All clusters that the policy may use are asked: where there is no room now there may be later. planned: of others
    that were asked about at this moment.
    """
    declaration = read_manifests(request.manifests)
    digest = declaration.shape.template
    clusters = _to_ask(state, declaration, moment.now)
    if state.admitted.is_known(digest) or not clusters:
        return None
    awaited = _awaited(state, declaration, clusters, moment, {} if planned is None else planned)
    if awaited is None:
        return None
    pod = json.dumps(json.loads(declaration.manifest)["spec"]["template"]).encode()
    if len(pod) > MANIFEST_BYTES_MAX:
        return None
    return Asked(ShapeAsked(digest, declaration.namespace, declaration.name, clusters, pod), awaited)


def unheard(
    state: PlannerState, requests: Iterable[ApplyRequest], moment: Moment
) -> Iterator[tuple[str, frozenset[str]]]:
    """After answers, by template: the clusters that replicas would go to by those, and that said nothing of it yet."""
    planned: Planned = {}
    for request in requests:
        declaration = read_manifests(request.manifests)
        awaited = _awaited(state, declaration, _to_ask(state, declaration, moment.now), moment, planned)
        yield declaration.shape.template, awaited or frozenset()


def _awaited(
    state: PlannerState, declaration: Declaration, clusters: tuple[str, ...], moment: Moment, planned: Planned
) -> frozenset[str] | None:
    """Of these clusters those that replicas would go to as things are and that are to say what they make of the
    template; None where the request is refused. planned: as question.
    """
    alike = _alike(state, declaration)
    try:
        if alike not in planned:
            planned[alike] = decisions.would_use(state, declaration, moment)
        used = planned[alike]
    except Undecided:
        used = frozenset(clusters)
    except RequestError:
        return None
    said = state.admitted.said_by(declaration.shape.template)
    return used & set(clusters) - state.admitted.silent.keys() - said


def _alike(state: PlannerState, declaration: Declaration) -> object:
    """Equal for new workloads that go to the same clusters at one moment, labels aside; others are like themselves."""
    if declaration.dependencies or (declaration.namespace, declaration.name) in state.workloads:
        return object()
    altered = state.admitted.altered(declaration.shape.template)
    return declaration.kind, declaration.replicas, declaration.shape, altered, declaration.policy


def _to_ask(state: PlannerState, declaration: Declaration, now: float) -> tuple[str, ...]:
    """Clusters of the policy's tiers that take replicas, answer, and are a propagator's."""
    return tuple(
        joined.cluster
        for joined in state.joined()
        if joined.cluster in state.admitted.held
        and joined.phase == PHASE_ACTIVE
        and state.is_fresh(joined.cluster, now)
        and any(in_tier(tier, joined) for tier in declaration.policy.tiers)
    )
