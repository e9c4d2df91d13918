"""Reads the vectors of two federated schedulers, which lie beside the repository, and asks our strategies the same."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from planner.core.compat import karmada, kubeadmiral, webster
from planner.core.compat import karmada_selection as selection
from planner.core.compat import kubeadmiral_rollout as rollout

ROOT = Path(__file__).parents[3]
FOLDER = next(
    (found for parent in ROOT.parents if (found := parent / "shared" / "vectors" / "federation").is_dir()), None
)
"""Beside the repository, or beside one of the folders that it is in; None where there are none."""

Json = dict[str, Any]
Answer = Callable[[Json], Json]
TIES = {
    "fewer_seats_then_name_ascending": webster.Ties.ASCENDING,
    "fewer_seats_then_name_descending": webster.Ties.DESCENDING,
    "name_ascending": webster.Ties.NAME_ASCENDING,
    "name_descending": webster.Ties.NAME_DESCENDING,
}


def cases(name: str) -> tuple[list[Json], int]:
    """The cases of a file, and how many it says that it has."""
    assert FOLDER is not None
    path = FOLDER / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text)
    return content["cases"], content["case_count"]


def failures(name: str) -> Iterator[tuple[str, Json]]:
    """Name and answer of every case of a file that we answer otherwise."""
    for case in cases(name)[0]:
        answer = ANSWERS[name](case["input"])
        accepted = [case["expected"], case.get("expected_with_stable_sort", case["expected"])]
        if not any(agrees(answer, expected) for expected in accepted):
            yield case["name"], answer


def agrees(answer: Json, expected: Json) -> bool:
    """Whether all that was answered is what was expected; empty and absent are the same, messages are not compared."""
    named = expected.keys() - {"message", "components", "finished", "not_placed"}
    return answer.keys() >= named and all(
        (value or None) == (expected.get(key) or None) for key, value in answer.items()
    )


def pairs(entries: list[Json] | None, amount: str = "replicas") -> list[tuple[str, int]]:
    return [(entry["cluster"], entry[amount]) for entry in entries or ()]


# ── Karmada ─────────────────────────────────────────────────────────────────────────────────────────────────────


def seats(given: Json) -> Json:
    ties = TIES[given["tie_break"]]
    return {"seats": webster.divide_seats(given["new_seats"], given["votes"], given["initial_seats"] or {}, ties)}


def weighted_division(given: Json) -> Json:
    assert webster.ties_of(given["uid"]) is TIES[given["tie_break"]]
    weights, existing = dict(pairs(given["weights"], "weight")), dict(pairs(given["existing"]))
    return {"assignment": karmada.divide_weighted(given["target_replicas"], weights, existing, given["uid"])}


def seats_or_division(given: Json) -> Json:
    return seats(given) if given["entry"] == "webster" else weighted_division(given)


def outcome(assign: Callable[[], dict[str, int]]) -> Json:
    try:
        return {"outcome": "assigned", "assignment": assign()}
    except karmada.Unschedulable:
        return {"outcome": "unschedulable"}
    except ValueError:
        return {"outcome": "error"}


def division_step(given: Json) -> Json:
    weights, existing = pairs(given["weights"]), dict(pairs(given["existing"]))
    return outcome(
        lambda: karmada.divide_new_replicas(
            given["strategy"], given["target_replicas"], weights, existing, given["uid"]
        )
    )


def assignment(given: Json) -> Json:
    """The whole step where clusters without replicas are dropped, the strategy's own function where they are not."""
    rules, existing = rules_of(given), pairs(given.get("existing"))
    task = karmada.AssignmentTask(
        given["strategy"], given["target_replicas"], given.get("uid", ""), given.get("mode") == "fresh", rules
    )
    candidates = [candidate_of(entry) for entry in given["clusters"]]
    names = [candidate.cluster for candidate in candidates]
    if given["drop_zero"]:
        return outcome(
            lambda: karmada.assign_replicas(task, candidates, existing, overflow=given.get("overflow", False))
        )
    if task.strategy == karmada.DUPLICATED:
        return outcome(lambda: karmada.assign_duplicated(names, task.replicas))
    if task.strategy == karmada.STATIC_WEIGHT:
        return outcome(lambda: karmada.assign_by_static_weight(names, rules, task.replicas, task.uid))
    return outcome(lambda: karmada.assign_by_capacity(task, candidates, existing))


def ordered_assignment(given: Json) -> Json:
    answer = assignment(given)
    return answer | {"order": list(answer["assignment"])} if "assignment" in answer else answer


def rules_of(given: Json) -> tuple[karmada.WeightRule, ...] | None:
    if given.get("weight_rules") is None:
        return None
    return tuple(
        karmada.WeightRule(None if rule["clusters"] is None else tuple(rule["clusters"]), rule["weight"])
        for rule in given["weight_rules"]
    )


def candidate_of(entry: str | Json) -> karmada.CandidateCluster:
    if isinstance(entry, str):
        return karmada.CandidateCluster(entry, 0, 0)
    return karmada.CandidateCluster(
        entry["cluster"], entry["capacity"], entry.get("capacity_with_existing", 0), entry.get("tier", 0)
    )


def place_of(entry: Json, existing: dict[str, int] | None = None) -> selection.FeasibleCluster:
    capacity = entry.get("capacity", 0) + (existing or {}).get(entry["cluster"], 0)
    return selection.FeasibleCluster(
        entry["cluster"],
        entry.get("capacity_with_existing", capacity),
        entry.get("score", 0),
        entry.get("tier", 0),
        entry.get("region", ""),
        tuple(entry.get("zones", ())),
        entry.get("provider", ""),
    )


def spreads_of(given: Json) -> tuple[selection.SelectionSpread, ...]:
    return tuple(
        selection.SelectionSpread(entry["by"], entry["min_groups"], entry["max_groups"])
        for entry in given.get("spread") or ()
    )


def request_of(given: Json) -> selection.SelectionRequest:
    return selection.SelectionRequest(
        given.get("strategy", "divided"), given.get("target_replicas", 0), spreads_of(given)
    )


def selected(select: Callable[[], list[selection.FeasibleCluster]]) -> Json:
    try:
        return {"outcome": "selected", "selected": [place.cluster for place in select()]}
    except selection.NotSelectable:
        return {"outcome": "error"}


def select_best(given: Json) -> Json:
    return selected(lambda: selection.select_best(request_of(given), [place_of(entry) for entry in given["clusters"]]))


def select_by_region(given: Json) -> Json:
    regions = [
        selection.ClusterGroup(entry["region"], tuple(place_of(place) for place in entry["clusters"]), entry["score"])
        for entry in given["regions"]
    ]
    return selected(lambda: selection.select_by_region(request_of(given), regions))


def select_groups(given: Json) -> Json:
    sizes = [selection.RegionSize(entry["group"], entry["cluster_count"], entry["score"]) for entry in given["groups"]]
    return {"selected": selection.select_groups(sizes, given["min_groups"], given["max_groups"], given["min_clusters"])}


def select_clusters(given: Json) -> Json:
    existing = dict(pairs(given["existing"]))
    places = [place_of(entry, existing) for entry in given["clusters"]]
    return selected(lambda: selection.select_clusters(request_of(given), places))


def group_clusters(given: Json) -> Json:
    request, ordered = request_of(given), selection.sort_clusters([place_of(entry) for entry in given["clusters"]])

    def groups(by: str) -> list[Json]:
        return [
            {
                "name": group.name,
                "clusters": [place.cluster for place in group.clusters],
                "score": group.score,
                "capacity_with_existing": group.available,
            }
            for group in selection.group_clusters(request, ordered, by)
        ]

    return {
        "order": [place.cluster for place in ordered],
        "regions": groups(selection.BY_REGION),
        "zones": groups(selection.BY_ZONE),
        "providers": groups(selection.BY_PROVIDER),
    }


def group_score(given: Json) -> Json:
    scores = [
        selection.score_of(request_of(given), [place_of(entry) for entry in given[group]], given["min_groups"])
        for group in ("group_1", "group_2")
        if group in given
    ]
    answer: Json = {f"score_{number}": score for number, score in enumerate(scores, 1)}
    return answer | ({"group_1_wins": scores[0] >= scores[1]} if len(scores) == 2 else {})


def sort_clusters(given: Json) -> Json:
    places = [place_of(entry) for entry in given["clusters"]]
    return {"order": [place.cluster for place in selection.sort_clusters(places, by_available=given["by_capacity"])]}


def spread_exists(given: Json) -> Json:
    return {"exists": request_of(given).find_spread(given["by"]) is not None}


# ── KubeAdmiral ─────────────────────────────────────────────────────────────────────────────────────────────────


def wish_of(given: Json, call: Json, mode: Json) -> kubeadmiral.PlanInput:
    preferences = {
        name: kubeadmiral.ClusterPreference(
            entry["weight"], entry["min"], kubeadmiral.UNBOUNDED if entry["max"] is None else entry["max"]
        )
        for name, entry in given["preferences"].items()
    }
    return kubeadmiral.PlanInput(
        replicas=given["target_replicas"],
        clusters=given["clusters"],
        preferences=preferences,
        key=given["key"],
        existing=call["existing"] or {},
        estimated=call["estimated_capacity"] or {},
        limited=given["limited_capacity"] or {},
        avoid_disruption=mode["avoid_disruption"],
        keep_unschedulable=mode["keep_unschedulable"],
    )


def planned(given: Json) -> Json:
    """All four modes of one call."""
    modes = [
        {"avoid_disruption": avoid, "keep_unschedulable": keep} for avoid in (False, True) for keep in (False, True)
    ]
    found = [(mode, kubeadmiral.plan_replicas(wish_of(given, given, mode))) for mode in modes]
    return {"by_mode": [mode | {"plan": answer.plan, "overflow": answer.overflow} for mode, answer in found]}


def planned_in_rounds(given: Json) -> Json:
    """Calls until nothing changes: capacities are learned by clusters that hold more than they can run."""
    existing: Json = given["existing"] or {}
    rounds: list[Json] = []
    last: Json = {"plan": {}, "overflow": {}}
    while len(rounds) < 3:
        learned = {
            name: count for name, count in (given["actual_capacity"] or {}).items() if existing.get(name, 0) > count
        }
        call = {"existing": existing, "estimated_capacity": learned}
        answer = kubeadmiral.plan_replicas(wish_of(given, call, given))
        found = {"plan": answer.plan, "overflow": answer.overflow}
        rounds.append(call | found)
        if found == last:
            break
        last = found
        names = answer.plan.keys() | answer.overflow.keys()
        existing = {name: answer.plan.get(name, 0) + answer.overflow.get(name, 0) for name in names}
    return found | {"rounds": rounds}


def fleet_of(given: Json) -> rollout.RolloutFleet:
    targets = [
        rollout.RolloutTarget(
            cluster=entry["cluster"],
            desired=entry["desired_replicas"],
            replicas=entry["replicas"],
            actual=entry["actual_replicas"],
            available=entry["available_replicas"],
            updated=entry["updated_replicas"],
            updated_available=entry["updated_available_replicas"],
            current_new=entry["current_new_replicas"],
            current_new_available=entry["current_new_available_replicas"],
            template_updated=entry["template_updated"],
            max_surge=entry["max_surge"],
            max_unavailable=entry["max_unavailable"],
        )
        for entry in given["clusters"]
    ]
    return rollout.RolloutFleet(given["max_surge"], given["max_unavailable"], given["target_replicas"], targets)


def rolled_out(given: Json) -> Json:
    answer = rollout.plan_rollout(fleet_of(given))
    plans = {
        name: {
            "replicas": step.replicas,
            "max_surge": step.max_surge,
            "max_unavailable": step.max_unavailable,
            "only_patch_replicas": step.only_replicas,
        }
        for name, step in answer.steps.items()
    }
    return {"plans": plans, "rejected": answer.rejected}


ANSWERS: dict[str, Answer] = {
    "karmada_webster.json": seats,
    "karmada_weighted_division.json": weighted_division,
    "fuzz_karmada_webster.json.gz": seats_or_division,
    "karmada_dynamic_division_step.json": division_step,
    "karmada_dynamic_assignment.json": assignment,
    "karmada_static_weight.json": assignment,
    "karmada_duplicated.json": assignment,
    "karmada_assign_replicas.json": ordered_assignment,
    "edge_karmada_assignment.json": assignment,
    "fuzz_karmada_assignment.json.gz": assignment,
    "karmada_select_clusters.json": select_clusters,
    "karmada_select_best.json": select_best,
    "karmada_select_by_region.json": select_by_region,
    "karmada_select_groups.json": select_groups,
    "karmada_group_clusters.json": group_clusters,
    "karmada_group_score.json": group_score,
    "karmada_sort_clusters.json": sort_clusters,
    "karmada_spread_exists.json": spread_exists,
    "kubeadmiral_planner.json": planned_in_rounds,
    "edge_kubeadmiral_planner.json": planned,
    "fuzz_kubeadmiral_planner.json.gz": planned,
    "kubeadmiral_rollout.json": rolled_out,
    "fuzz_kubeadmiral_rollout.json.gz": rolled_out,
}
