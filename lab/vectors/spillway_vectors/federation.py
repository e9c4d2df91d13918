"""Reads the test vectors of two federated schedulers, kept beside the repository, and runs our strategies on them."""

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
"""The folder of the vectors, beside the repository or beside a folder above it; None if there is none."""

Json = dict[str, Any]
Answer = Callable[[Json], Json]
TIES = {
    "fewer_seats_then_name_ascending": webster.Ties.ASCENDING,
    "fewer_seats_then_name_descending": webster.Ties.DESCENDING,
    "name_ascending": webster.Ties.NAME_ASCENDING,
    "name_descending": webster.Ties.NAME_DESCENDING,
}


def read_cases_and_count(name: str) -> tuple[list[Json], int]:
    """Returns (the cases of a file, the number of cases that the file itself names)."""
    assert FOLDER is not None
    path = FOLDER / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text)
    return content["cases"], content["case_count"]


def differing_answers(name: str) -> Iterator[tuple[str, Json]]:
    """Yields (case name, our answer) for every case of a file in which our answer differs."""
    for case in read_cases_and_count(name)[0]:
        answer = ANSWERS[name](case["input"])
        accepted = [case["expected"], case.get("expected_with_stable_sort", case["expected"])]
        if not any(is_expected_answer(answer, expected) for expected in accepted):
            yield case["name"], answer


def is_expected_answer(answer: Json, expected: Json) -> bool:
    """Returns whether an answer is the expected one. Empty and absent values are equal; messages are not compared."""
    named = expected.keys() - {"message", "components", "finished", "not_placed"}
    return answer.keys() >= named and all(
        (value or None) == (expected.get(key) or None) for key, value in answer.items()
    )


def cluster_amount_pairs(entries: list[Json] | None, amount: str = "replicas") -> list[tuple[str, int]]:
    return [(entry["cluster"], entry[amount]) for entry in entries or ()]


# ── Karmada ─────────────────────────────────────────────────────────────────────────────────────────────────────


def answer_seats(given: Json) -> Json:
    ties = TIES[given["tie_break"]]
    return {"seats": webster.divide_seats(given["new_seats"], given["votes"], given["initial_seats"] or {}, ties)}


def answer_weighted_division(given: Json) -> Json:
    assert webster.tie_order_of_uid(given["uid"]) is TIES[given["tie_break"]]
    weights, existing = (
        dict(cluster_amount_pairs(given["weights"], "weight")),
        dict(cluster_amount_pairs(given["existing"])),
    )
    return {"assignment": karmada.divide_weighted(given["target_replicas"], weights, existing, given["uid"])}


def answer_seats_or_division(given: Json) -> Json:
    return answer_seats(given) if given["entry"] == "webster" else answer_weighted_division(given)


def assignment_outcome(assign: Callable[[], dict[str, int]]) -> Json:
    try:
        return {"outcome": "assigned", "assignment": assign()}
    except karmada.Unschedulable:
        return {"outcome": "unschedulable"}
    except ValueError:
        return {"outcome": "error"}


def answer_division_step(given: Json) -> Json:
    weights, existing = cluster_amount_pairs(given["weights"]), dict(cluster_amount_pairs(given["existing"]))
    return assignment_outcome(
        lambda: karmada.divide_new_replicas(
            given["strategy"], given["target_replicas"], weights, existing, given["uid"]
        )
    )


def answer_assignment(given: Json) -> Json:
    """Answers by the whole step if clusters without replicas are dropped, else by the strategy's own function."""
    rules, existing = weight_rules_of(given), cluster_amount_pairs(given.get("existing"))
    task = karmada.AssignmentTask(
        given["strategy"], given["target_replicas"], given.get("uid", ""), given.get("mode") == "fresh", rules
    )
    candidates = [candidate_cluster_of(entry) for entry in given["clusters"]]
    names = [candidate.cluster for candidate in candidates]
    if given["drop_zero"]:
        return assignment_outcome(
            lambda: karmada.assign_replicas(task, candidates, existing, overflow=given.get("overflow", False))
        )
    if task.strategy == karmada.DUPLICATED:
        return assignment_outcome(lambda: karmada.assign_duplicated(names, task.replicas))
    if task.strategy == karmada.STATIC_WEIGHT:
        return assignment_outcome(lambda: karmada.assign_by_static_weight(names, rules, task.replicas, task.uid))
    return assignment_outcome(lambda: karmada.assign_by_capacity(task, candidates, existing))


def answer_ordered_assignment(given: Json) -> Json:
    answer = answer_assignment(given)
    return answer | {"order": list(answer["assignment"])} if "assignment" in answer else answer


def weight_rules_of(given: Json) -> tuple[karmada.WeightRule, ...] | None:
    if given.get("weight_rules") is None:
        return None
    return tuple(
        karmada.WeightRule(None if rule["clusters"] is None else tuple(rule["clusters"]), rule["weight"])
        for rule in given["weight_rules"]
    )


def candidate_cluster_of(entry: str | Json) -> karmada.CandidateCluster:
    if isinstance(entry, str):
        return karmada.CandidateCluster(entry, 0, 0)
    return karmada.CandidateCluster(
        entry["cluster"], entry["capacity"], entry.get("capacity_with_existing", 0), entry.get("tier", 0)
    )


def feasible_cluster_of(entry: Json, existing: dict[str, int] | None = None) -> selection.FeasibleCluster:
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


def selection_spreads_of(given: Json) -> tuple[selection.SelectionSpread, ...]:
    return tuple(
        selection.SelectionSpread(entry["by"], entry["min_groups"], entry["max_groups"])
        for entry in given.get("spread") or ()
    )


def selection_request_of(given: Json) -> selection.SelectionRequest:
    return selection.SelectionRequest(
        given.get("strategy", "divided"), given.get("target_replicas", 0), selection_spreads_of(given)
    )


def selection_outcome(select: Callable[[], list[selection.FeasibleCluster]]) -> Json:
    try:
        return {"outcome": "selected", "selected": [place.cluster for place in select()]}
    except selection.NotSelectable:
        return {"outcome": "error"}


def answer_select_best(given: Json) -> Json:
    return selection_outcome(
        lambda: selection.select_best(
            selection_request_of(given), [feasible_cluster_of(entry) for entry in given["clusters"]]
        )
    )


def answer_select_by_region(given: Json) -> Json:
    regions = [
        selection.ClusterGroup(
            entry["region"], tuple(feasible_cluster_of(place) for place in entry["clusters"]), entry["score"]
        )
        for entry in given["regions"]
    ]
    return selection_outcome(lambda: selection.select_by_region(selection_request_of(given), regions))


def answer_select_groups(given: Json) -> Json:
    sizes = [selection.RegionSize(entry["group"], entry["cluster_count"], entry["score"]) for entry in given["groups"]]
    return {"selected": selection.select_groups(sizes, given["min_groups"], given["max_groups"], given["min_clusters"])}


def answer_select_clusters(given: Json) -> Json:
    existing = dict(cluster_amount_pairs(given["existing"]))
    places = [feasible_cluster_of(entry, existing) for entry in given["clusters"]]
    return selection_outcome(lambda: selection.select_clusters(selection_request_of(given), places))


def answer_group_clusters(given: Json) -> Json:
    request, ordered = (
        selection_request_of(given),
        selection.sort_clusters([feasible_cluster_of(entry) for entry in given["clusters"]]),
    )

    def group_entries(by: str) -> list[Json]:
        return [
            {
                "name": group.name,
                "clusters": [place.cluster for place in group.clusters],
                "score": group.score,
                "capacity_with_existing": group.available_replicas,
            }
            for group in selection.group_clusters(request, ordered, by)
        ]

    return {
        "order": [place.cluster for place in ordered],
        "regions": group_entries(selection.BY_REGION),
        "zones": group_entries(selection.BY_ZONE),
        "providers": group_entries(selection.BY_PROVIDER),
    }


def answer_group_score(given: Json) -> Json:
    scores = [
        selection.score_of_group(
            selection_request_of(given), [feasible_cluster_of(entry) for entry in given[group]], given["min_groups"]
        )
        for group in ("group_1", "group_2")
        if group in given
    ]
    answer: Json = {f"score_{number}": score for number, score in enumerate(scores, 1)}
    return answer | ({"group_1_wins": scores[0] >= scores[1]} if len(scores) == 2 else {})


def answer_sort_clusters(given: Json) -> Json:
    places = [feasible_cluster_of(entry) for entry in given["clusters"]]
    return {"order": [place.cluster for place in selection.sort_clusters(places, by_available=given["by_capacity"])]}


def answer_spread_exists(given: Json) -> Json:
    return {"exists": selection_request_of(given).find_spread(given["by"]) is not None}


# ── KubeAdmiral ─────────────────────────────────────────────────────────────────────────────────────────────────


def plan_input_of(given: Json, call: Json, mode: Json) -> kubeadmiral.PlanInput:
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


def answer_plans_by_mode(given: Json) -> Json:
    """Returns the plans of one call in all four modes."""
    modes = [
        {"avoid_disruption": avoid, "keep_unschedulable": keep} for avoid in (False, True) for keep in (False, True)
    ]
    found = [(mode, kubeadmiral.plan_replicas(plan_input_of(given, given, mode))) for mode in modes]
    return {"by_mode": [mode | {"plan": answer.plan, "overflow": answer.overflow} for mode, answer in found]}


def answer_plans_in_rounds(given: Json) -> Json:
    """Repeats calls until nothing changes. Clusters that have more replicas than they can run show their capacity."""
    existing: Json = given["existing"] or {}
    rounds: list[Json] = []
    last: Json = {"plan": {}, "overflow": {}}
    while len(rounds) < 3:
        learned = {
            name: count for name, count in (given["actual_capacity"] or {}).items() if existing.get(name, 0) > count
        }
        call = {"existing": existing, "estimated_capacity": learned}
        answer = kubeadmiral.plan_replicas(plan_input_of(given, call, given))
        found = {"plan": answer.plan, "overflow": answer.overflow}
        rounds.append(call | found)
        if found == last:
            break
        last = found
        names = answer.plan.keys() | answer.overflow.keys()
        existing = {name: answer.plan.get(name, 0) + answer.overflow.get(name, 0) for name in names}
    return found | {"rounds": rounds}


def rollout_fleet_of(given: Json) -> rollout.RolloutFleet:
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


def answer_rollout(given: Json) -> Json:
    answer = rollout.plan_rollout(rollout_fleet_of(given))
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
    "karmada_webster.json": answer_seats,
    "karmada_weighted_division.json": answer_weighted_division,
    "fuzz_karmada_webster.json.gz": answer_seats_or_division,
    "karmada_dynamic_division_step.json": answer_division_step,
    "karmada_dynamic_assignment.json": answer_assignment,
    "karmada_static_weight.json": answer_assignment,
    "karmada_duplicated.json": answer_assignment,
    "karmada_assign_replicas.json": answer_ordered_assignment,
    "edge_karmada_assignment.json": answer_assignment,
    "fuzz_karmada_assignment.json.gz": answer_assignment,
    "karmada_select_clusters.json": answer_select_clusters,
    "karmada_select_best.json": answer_select_best,
    "karmada_select_by_region.json": answer_select_by_region,
    "karmada_select_groups.json": answer_select_groups,
    "karmada_group_clusters.json": answer_group_clusters,
    "karmada_group_score.json": answer_group_score,
    "karmada_sort_clusters.json": answer_sort_clusters,
    "karmada_spread_exists.json": answer_spread_exists,
    "kubeadmiral_planner.json": answer_plans_in_rounds,
    "edge_kubeadmiral_planner.json": answer_plans_by_mode,
    "fuzz_kubeadmiral_planner.json.gz": answer_plans_by_mode,
    "kubeadmiral_rollout.json": answer_rollout,
    "fuzz_kubeadmiral_rollout.json.gz": answer_rollout,
}
