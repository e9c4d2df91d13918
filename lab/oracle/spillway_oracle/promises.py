"""Checks promises for several templates on one cluster: all promised replicas together must find nodes.

The planner promises replicas of the first template, then of the second beside these, and so on, with none bound yet.
Then the scheduler gets all of them, in several orders and with several ways to choose. Each replica must find a node.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.core.feasibility.admitted import unmodelled_with_overhead
from planner.core.feasibility.promises import ClusterReservations as PlannersPromises
from planner.core.feasibility.reservation import Reservation
from spillway.api import RequestError
from spillway.kubernetes.objects import Manifest
from spillway.kubernetes.pod_shape import shape_of

from .cases import Case, make_case
from .chance import Chance, Seeded
from .clusters import NEW_HASH
from .oracle import FIRST, LAST, RANDOM, SCORE, Oracle, Place, Request
from .planner import CLUSTER, cluster_view, shape_in_cluster
from .pods import APPS, HASH, USUAL_NAMESPACES
from .templates import FEATURES, MIXED, VOLUMES, make_template
from .verdicts import order_matters

MORE_MAX = 40
ORDERS: tuple[tuple[str, str], ...] = (
    ("as promised", SCORE),
    ("last first", SCORE),
    ("as promised", FIRST),
    ("last first", LAST),
    ("mixed", SCORE),
    ("mixed", RANDOM),
    ("mixed", RANDOM),
    ("last first", RANDOM),
)
PLAIN, BETWEEN_PODS = "without spread or affinity between pods", "with spread or affinity between pods"


@dataclass(frozen=True, slots=True)
class Part:
    """One template with its promised replicas. The last part of a list is the newest promise."""

    namespace: str
    template: Manifest
    replicas: int


@dataclass(frozen=True, slots=True)
class Promises:
    """A cluster with its promises, and the result.

    unplaced: the replicas without a node in the worst order. more: the further replicas of the last part that fitted.
    """

    world: Mapping[str, Any]
    parts: tuple[Part, ...]
    unplaced: int = 0
    more: int = 0

    @property
    def kind_of_templates(self) -> str:
        return BETWEEN_PODS if any(order_matters(part.template) for part in self.parts) else PLAIN


def check_promises(cases: int, number: int, oracle: Oracle) -> tuple[Counter[str], list[Promises]]:
    """Returns (figures by kind, the cases with a broken promise). number: the first seed, in millions."""
    tally: Counter[str] = Counter()
    broken: list[Promises] = []
    for index in range(cases):
        seed = number * 1_000_000 + index
        promised = _make_promises(Seeded(seed))
        if promised is None:
            tally["not modelled"] += 1
            continue
        played = place_promised_replicas(promised, oracle, seed)
        if played is None:
            tally["no server would take it"] += 1
            continue
        kind = played.kind_of_templates
        tally[f"{kind}: cases"] += 1
        tally[f"{kind}: replicas promised"] += sum(part.replicas for part in played.parts)
        tally[f"{kind}: of the last promise"] += played.parts[-1].replicas
        tally[f"{kind}: of the last template, that would have fitted"] += played.parts[-1].replicas + played.more
        tally[f"{kind}: replicas without a node"] += played.unplaced
        if played.unplaced:
            tally[f"{kind}: cases with a broken promise"] += 1
            broken.append(played)
    return tally, broken


def place_promised_replicas(promised: Promises, oracle: Oracle, seed: int) -> Promises | None:
    """Places all promised replicas and returns the result; None when an API server would refuse a template."""
    unplaced, more = 0, MORE_MAX
    chance = random.Random(seed)
    for number, (order, mode) in enumerate(ORDERS):
        places = list(_places_in_order(promised.parts, order, mode, chance, number))
        last = promised.parts[-1]
        another = Place(last.namespace, last.template, MORE_MAX, mode, number)
        *placed, rest = oracle.send_request(Request(load=promised.world, place=[*places, another])).placed
        if any(entry.error for entry in placed):
            return None
        missing = sum(place.replicas for place in places) - sum(entry.count for entry in placed)
        unplaced, more = max(unplaced, missing), min(more, rest.count)
    return Promises(promised.world, promised.parts, unplaced, more)


def _places_in_order(parts: Sequence[Part], order: str, mode: str, chance: random.Random, seed: int) -> Iterator[Place]:
    if order == "mixed":
        each = [part for part in parts for _ in range(part.replicas)]
        chance.shuffle(each)
        for index, part in enumerate(each):
            yield Place(part.namespace, part.template, 1, mode, seed + index, keep=True)
        return
    for part in parts if order == "as promised" else reversed(parts):
        yield Place(part.namespace, part.template, part.replicas, mode, seed, keep=True)


def _make_promises(chance: Chance) -> Promises | None:
    """Makes a cluster and lets the planner promise; None when it refuses a template or does not model it whole."""
    case = make_case(chance)
    view, promised = cluster_view(case.world), PlannersPromises()
    parts = []
    for index, (namespace, asked) in enumerate(_random_templates(chance, case)):
        try:
            shape, unknown = shape_in_cluster(shape_of(asked, namespace, "template"), view)
        except RequestError:
            return None
        if unmodelled_with_overhead(shape.unmodelled, shape) or unknown:
            return None
        certain = promised.room_in_cluster(view, shape, node_groups=False).certain
        replicas = certain if chance.is_chosen(60) else chance.pick_integer(0, certain)
        reservation = Reservation(replicas, 0, 0, ((shape, replicas),) if replicas else (), ())
        promised.set_reservation(CLUSTER, (namespace, f"workload-{index}"), reservation)
        labels = asked["metadata"]["labels"] | {HASH: f"{NEW_HASH}-{index}"}
        parts.append(Part(namespace, asked | {"metadata": {"labels": labels}}, replicas))
    return Promises(case.world, tuple(parts))


def _random_templates(chance: Chance, case: Case) -> Iterator[tuple[str, Manifest]]:
    names = [node["metadata"]["name"] for node in case.nodes]
    yield case.namespace, case.template
    for _ in range(chance.pick_integer(1, 2)):
        about = chance.pick_option(
            [feature for feature in FEATURES if feature != MIXED and (feature != VOLUMES or "claims" in case.world)]
        )
        asked = make_template(chance, frozenset((about,)), names)
        asked["metadata"]["labels"]["app"] = chance.pick_option(APPS)
        yield chance.pick_option(USUAL_NAMESPACES), asked
