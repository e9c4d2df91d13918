"""Compares the planner's answer for a case with the oracle's, and defines how they may differ.

If the order of choices cannot matter, the planner's certain, possible and replicas per node must equal the oracle's.
If it can matter (spread, affinity between pods), every choice of the scheduler must end with at least `certain` and at
most `possible` replicas: certain ≤ least ≤ most ≤ possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spillway.kubernetes.objects import Manifest

from .cases import Case
from .clusters import NEW_HASH
from .oracle import EXTREMES, FIRST, LAST, RANDOM, SCORE, Place, Placed, Request
from .planner import PlannerAnswer, planner_answer
from .pods import HASH
from .reasons import Compared, Refused, compare_reasons

REPLICAS_MAX = 300
STATES_MAX = 1500
SAMPLES = ((FIRST, 0), (LAST, 0), (SCORE, 1), (RANDOM, 1), (RANDOM, 2), (RANDOM, 3))
REFUSED_BY_SERVER = "the API server refuses it"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

AGREES = "agrees"
UNMODELLED = "not modelled"
INVALID = "no server would take it"
TOO_MUCH = "promises too much"
TOO_LITTLE = "promises too little"
REFUSES = "refuses what fits"
MORE_POSSIBLE = "calls more possible than fits"
OTHER_NODES = "other nodes"
NOT_TAKEN = "does not take the template"
OTHER_REASONS = "says other reasons"
DISAGREEMENTS = (TOO_MUCH, TOO_LITTLE, REFUSES, MORE_POSSIBLE, OTHER_NODES, NOT_TAKEN, OTHER_REASONS)


@dataclass(frozen=True, slots=True)
class Truth:
    """The oracle's answer. least, most: replicas that the scheduler can end with; equal if the order cannot matter.

    every: whether all sequences of choices were tried. refused: the API server's refusal of the pod.
    nodes: replicas by node when each takes the first node by name; if the order cannot matter, in any placement.
    reasons: why each node refused one replica more after that.
    pod: one replica as the server stores it. Only its name differs, since the oracle counts all requests in it.
    """

    least: int = 0
    most: int = 0
    ordered: bool = False
    every: bool = True
    nodes: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    reasons: tuple[Refused, ...] = ()
    pod: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a case. reasons: compared reasons of each full node, if they were compared."""

    kind: str
    detail: str
    truth: Truth
    answer: PlannerAnswer
    reasons: tuple[Compared, ...] = ()

    @property
    def is_disagreement(self) -> bool:
        return self.kind in DISAGREEMENTS


def order_matters(template: Manifest) -> bool:
    spec = template["spec"]
    affinity = spec.get("affinity") or {}
    between_pods = (affinity.get(kind) or {} for kind in ("podAffinity", "podAntiAffinity"))
    spread = spec.get("topologySpreadConstraints") or ()
    return any(kind.get(REQUIRED) for kind in between_pods) or any(
        constraint["whenUnsatisfiable"] == "DoNotSchedule" for constraint in spread
    )


def request_of_case(case: Case) -> Request:
    """Returns the request for a case. Replicas have their template's hash, as in a ReplicaSet. The planner lacks it."""
    metadata = case.template["metadata"]
    labels = {**metadata.get("labels", {}), HASH: NEW_HASH}
    template = case.template | {"metadata": metadata | {"labels": labels}}

    def placement_by_mode(mode: str, seed: int = 0) -> Place:
        return Place(case.namespace, template, REPLICAS_MAX, mode, seed, states_max=STATES_MAX, pod=mode == FIRST)

    if not order_matters(case.template):
        return Request(load=case.world, place=(placement_by_mode(FIRST),))
    return Request(
        load=case.world, place=(placement_by_mode(EXTREMES), *(placement_by_mode(mode, seed) for mode, seed in SAMPLES))
    )


def truth_of_answers(case: Case, placed: Sequence[Placed]) -> Truth:
    """Returns the truth of a case. placed: the oracle's answers to request_of_case(case)."""
    errors = [entry.error for entry in placed if entry.error]
    if errors and errors[0].startswith(REFUSED_BY_SERVER):
        return Truth(refused=errors[0])
    first = placed[1] if order_matters(case.template) else placed[0]
    reasons = tuple((node, why.plugin, tuple(sorted(why.reasons or ()))) for node, why in sorted(first.refused.items()))
    stands = tuple(sorted(first.nodes.items()))
    pod = None if first.pod is None else _pod_without_name(first.pod)
    if not order_matters(case.template):
        _check_no_errors(errors)
        return Truth(first.count, first.count, nodes=stands, reasons=reasons, pod=pod)
    extremes, *samples = placed
    _check_no_errors([entry.error for entry in samples if entry.error])
    counts = [entry.count for entry in samples]
    if extremes.least is None or extremes.most is None:
        if "states" not in extremes.error:
            raise AssertionError(extremes.error)
        return Truth(min(counts), max(counts), True, False, stands, "", reasons, pod)
    if not all(extremes.least <= count <= extremes.most for count in counts):
        raise AssertionError(f"the oracle contradicts itself: {counts} outside {extremes.least} to {extremes.most}")
    return Truth(extremes.least, extremes.most, True, True, stands, "", reasons, pod)


def _pod_without_name(pod: Manifest) -> Manifest:
    return pod | {"metadata": {name: value for name, value in pod["metadata"].items() if name != "name"}}


def _check_no_errors(errors: Sequence[str]) -> None:
    if errors:
        raise AssertionError(f"the oracle failed: {errors[0]}")


def _verdict_with_reasons(case: Case, found: Verdict) -> Verdict:
    """Adds the compared reasons of each full node, if planner and oracle agree on the numbers."""
    truth = found.truth
    if found.kind != AGREES or truth.pod is None:
        return found
    reasons = tuple(compare_reasons(case, dict(truth.nodes), truth.reasons, truth.pod))
    differing = [f"{one.node}: {one.kind}" for one in reasons if one.is_deviation]
    if differing:
        return Verdict(OTHER_REASONS, differing[0], truth, found.answer, reasons)
    return replace(found, reasons=reasons)


def planner_answer_to_case(case: Case) -> PlannerAnswer:
    return planner_answer(case.world, case.template, case.namespace)


def verdict_on_case(case: Case, truth: Truth) -> Verdict:
    answer = planner_answer_to_case(case)
    kind, detail = _kind_and_detail(truth, answer)
    return _verdict_with_reasons(case, Verdict(kind, detail, truth, answer))


def _kind_and_detail(truth: Truth, answer: PlannerAnswer) -> tuple[str, str]:
    if truth.refused:
        return INVALID, truth.refused
    if answer.refused:
        return NOT_TAKEN, answer.refused
    if answer.unmodelled:
        return UNMODELLED, "; ".join(answer.unmodelled)
    least, most, certain, possible = truth.least, truth.most, answer.certain, answer.possible
    said = f"planner {certain} to {possible}, scheduler {least} to {most}"
    if certain > least:
        return TOO_MUCH, said
    if possible < most:
        return REFUSES, said
    if truth.ordered:
        return AGREES, said
    if certain < least:
        return TOO_LITTLE, said
    if possible > most:
        return MORE_POSSIBLE, said
    nodes = dict(truth.nodes)
    if nodes != dict(answer.by_node):
        return OTHER_NODES, f"planner {dict(answer.by_node)}, scheduler {nodes}"
    return AGREES, said
