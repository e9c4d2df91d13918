"""What the compatible strategies promise, whatever the numbers; their exact answers are tests/vectors."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.compat import karmada, kubeadmiral, webster
from planner.core.compat import karmada_selection as selection
from planner.core.compat import kubeadmiral_rollout as rollout
from planner.core.compat.karmada import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC_WEIGHT,
    STATIC_WEIGHT,
    AssignmentTask,
    CandidateCluster,
)

NAMES = st.sampled_from([f"c{number}" for number in range(12)])
VOTES = st.dictionaries(NAMES, st.integers(0, 10**6), max_size=12)
TIES = st.sampled_from(webster.Ties)


def seats_given_one_by_one(
    new: int, votes: dict[str, int], initial: dict[str, int], ties: webster.Ties
) -> dict[str, int]:
    """The method as it is told: no shortcut."""
    held = {party: initial.get(party, 0) for party in sorted(votes.keys() | initial.keys())}
    backwards = ties in (webster.Ties.DESCENDING, webster.Ties.NAME_DESCENDING)
    by_seats = ties in (webster.Ties.ASCENDING, webster.Ties.DESCENDING)
    for _ in range(new if held else 0):
        quotients = {party: float(votes.get(party, 0)) / float(2 * held[party] + 1) for party in held}
        best = [party for party in held if quotients[party] == max(quotients.values())]
        fewest = [party for party in best if not by_seats or held[party] == min(held[each] for each in best)]
        held[max(fewest) if backwards else min(fewest)] += 1
    return held


@given(new=st.integers(0, 120), votes=VOTES, initial=st.dictionaries(NAMES, st.integers(0, 9), max_size=4), ties=TIES)
def test_seats_handed_out_at_once_are_those_handed_out_one_by_one(
    new: int, votes: dict[str, int], initial: dict[str, int], ties: webster.Ties
) -> None:
    assert webster.divide_seats(new, votes, initial, ties) == seats_given_one_by_one(new, votes, initial, ties)


@given(new=st.integers(0, 60), votes=VOTES.filter(lambda votes: sum(votes.values()) > 0), ties=TIES)
def test_one_seat_more_takes_none_from_anybody(new: int, votes: dict[str, int], ties: webster.Ties) -> None:
    fewer, more = (webster.divide_seats(count, votes, {}, ties) for count in (new, new + 1))
    assert sum(more.values()) == new + 1
    assert all(more[party] >= count for party, count in fewer.items())


CANDIDATES = st.lists(
    st.tuples(NAMES, st.integers(0, 40), st.integers(0, 2)), max_size=8, unique_by=lambda entry: entry[0]
)


@given(
    replicas=st.integers(0, 200),
    given_candidates=CANDIDATES.filter(bool),
    strategy=st.sampled_from([DYNAMIC_WEIGHT, AGGREGATED]),
    overflow=st.booleans(),
    uid=st.text(max_size=4),
)
def test_by_room_all_are_assigned_within_it_or_none(
    replicas: int, given_candidates: list[tuple[str, int, int]], strategy: str, overflow: bool, uid: str
) -> None:
    candidates = [CandidateCluster(name, room, room, tier) for name, room, tier in given_candidates]
    rooms = {name: room for name, room, _ in given_candidates}
    try:
        found = karmada.assign_replicas(AssignmentTask(strategy, replicas, uid), candidates, [], overflow=overflow)
    except karmada.Unschedulable:
        assert sum(rooms.values()) < replicas
        return
    assert sum(found.values()) == replicas
    assert all(0 < count <= rooms[name] for name, count in found.items())


ASSIGNMENTS = {
    "duplicated: all everywhere": (AssignmentTask(DUPLICATED, 4), {"a": 4, "b": 4, "c": 4}),
    "static weights: the largest rule that means a cluster": (
        AssignmentTask(STATIC_WEIGHT, 8, rules=(karmada.WeightRule(None, 1), karmada.WeightRule(("a",), 2))),
        {"a": 4, "b": 2, "c": 2},
    ),
    "static weights: none has one": (AssignmentTask(STATIC_WEIGHT, 6), {"a": 2, "b": 2, "c": 2}),
    "dynamic weight: by room": (AssignmentTask(DYNAMIC_WEIGHT, 12), {"a": 6, "b": 4, "c": 2}),
    "aggregated: the fewest clusters, shared by room": (AssignmentTask(AGGREGATED, 20), {"a": 12, "b": 8}),
    "tiers: the first as far as it has room": (AssignmentTask(DYNAMIC_WEIGHT, 20), {"a": 18, "b": 2}),
}


@pytest.mark.parametrize(("task", "expected"), ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_assignments(task: AssignmentTask, expected: dict[str, int]) -> None:
    tiers = {"a": 0, "b": 1, "c": 2} if expected == {"a": 18, "b": 2} else {}
    candidates = [
        CandidateCluster(name, room, room, tiers.get(name, 0)) for name, room in (("a", 18), ("b", 12), ("c", 6))
    ]
    assert karmada.assign_replicas(task, candidates, [], overflow=bool(tiers)) == expected


def test_replicas_become_fewer_in_proportion_to_what_is_there_whatever_the_room() -> None:
    candidates = [CandidateCluster("a", 0, 8), CandidateCluster("b", 50, 54)]
    assert karmada.assign_replicas(AssignmentTask(DYNAMIC_WEIGHT, 6), candidates, [("a", 8), ("b", 4)]) == {
        "a": 4,
        "b": 2,
    }


SELECTIONS = {
    "the best of the clusters": ((("cluster", 1, 2),), ["b", "a"]),
    "as many regions": ((("region", 2, 2), ("cluster", 1, 9)), ["b", "c", "a"]),
    "too few regions": ((("region", 3, 3),), None),
    "by a field that nothing looks at": ((("zone", 1, 1),), None),
}


@pytest.mark.parametrize(("spreads", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_selections(spreads: tuple[tuple[str, int, int], ...], expected: list[str] | None) -> None:
    places = [
        selection.FeasibleCluster("a", 20, region="north"),
        selection.FeasibleCluster("b", 30, region="north"),
        selection.FeasibleCluster("c", 10, region="south"),
    ]
    request = selection.SelectionRequest(
        DYNAMIC_WEIGHT, 20, tuple(selection.SelectionSpread(*spread) for spread in spreads)
    )
    if expected is None:
        with pytest.raises(selection.NotSelectable):
            selection.select_clusters(request, places)
    else:
        assert [place.cluster for place in selection.select_clusters(request, places)] == expected


Sets = list[tuple[selection.RegionSize, ...]]


def region_sets_depth_first(groups: list[selection.RegionSize], least: int, most: int, clusters: int) -> Sets:
    """As the search for regions is told: depth first, and nothing is added to a set that has enough."""
    if len(groups) == least:
        return [tuple(groups)] if sum(group.clusters for group in groups) >= clusters else []
    ordered = sorted(groups, key=lambda group: (group.clusters, -group.score, group.name))
    found: Sets = []

    def extend_path(path: tuple[selection.RegionSize, ...], first: int) -> None:
        if path and least <= len(path) <= most and sum(group.clusters for group in path) >= clusters:
            found.append(path)
        elif len(path) < most:
            for index in range(first, len(ordered)):
                extend_path((*path, ordered[index]), index + 1)

    extend_path((), 0)
    return found


SIZES = st.builds(
    selection.RegionSize, st.just(""), st.integers(1, 4), st.sampled_from((0, 1000, 2000)) | st.integers(0, 3)
)  # fmt: skip


@given(sizes=st.lists(SIZES, max_size=7), least=st.integers(0, 7), more=st.integers(-1, 3), clusters=st.integers(0, 14))
def test_the_best_set_of_regions_is_found_as_by_looking_at_every_one(
    sizes: list[selection.RegionSize], least: int, more: int, clusters: int
) -> None:
    groups = [replace(size, name=f"r{number}") for number, size in enumerate(sizes)]
    names = [
        [group.name for group in sorted(path, key=lambda group: (-group.score, group.name))]
        for path in sorted(
            region_sets_depth_first(groups, least, least + more, clusters),
            key=lambda path: (-sum(group.score for group in path), -sum(group.clusters for group in path)),
        )
    ]
    expected = min((path for path in names if path == names[0][: len(path)]), key=len, default=[])
    assert selection.select_groups(groups, least, least + more, clusters) == expected


def test_regions_are_chosen_among_a_hundred() -> None:
    """There are 10^29 sets of 50 of them: to look at each would end the planner."""
    groups = [selection.RegionSize(f"r{number:02}", 1 + number % 3, number) for number in range(100)]
    best = [f"r{number}" for number in range(99, 49, -1)]
    assert selection.select_groups(groups, 50, 100, 0) == best
    chosen = selection.select_groups(groups, 20, 30, 85)
    assert len(chosen) <= 30
    assert sum(group.clusters for group in groups if group.name in chosen) >= 85


PREFERENCES = st.builds(
    kubeadmiral.ClusterPreference, weight=st.integers(0, 9), min=st.integers(0, 5), max=st.integers(5, 40)
)


@given(
    replicas=st.integers(0, 100),
    preferences=st.dictionaries(NAMES, PREFERENCES, min_size=1, max_size=6),
    limited=st.dictionaries(NAMES, st.integers(0, 30), max_size=6),
)
def test_the_planner_keeps_maxima_and_hard_bounds(
    replicas: int, preferences: dict[str, kubeadmiral.ClusterPreference], limited: dict[str, int]
) -> None:
    wish = kubeadmiral.PlanInput(replicas, sorted(preferences), preferences, limited=limited)
    found = kubeadmiral.plan_replicas(wish)
    assert sum(found.plan.values()) <= replicas
    assert all(count <= preferences[name].max for name, count in found.plan.items())
    assert all(count <= limited.get(name, count) for name, count in found.plan.items())
    assert not found.overflow


@given(
    replicas=st.integers(0, 100),
    preferences=st.dictionaries(NAMES, PREFERENCES, min_size=1, max_size=6),
    existing=st.dictionaries(NAMES, st.integers(0, 40), max_size=6),
)
def test_avoiding_disruption_only_shrinks_or_only_grows(
    replicas: int, preferences: dict[str, kubeadmiral.ClusterPreference], existing: dict[str, int]
) -> None:
    wish = kubeadmiral.PlanInput(replicas, sorted(preferences), preferences, existing=existing, avoid_disruption=True)
    found = kubeadmiral.plan_replicas(wish).plan
    changes = [count - existing.get(name, 0) for name, count in found.items()]
    assert min(changes) >= 0 or max(changes) <= 0


def rollout_target(name: str, desired: int, replicas: int, updated: int) -> rollout.RolloutTarget:
    """A cluster without any pod in between."""
    return rollout.RolloutTarget(
        name, desired, replicas, replicas, replicas, updated, updated, replicas, replicas, bool(updated), 0, 1
    )


ROLLOUTS = {
    "only scaling: every cluster goes": (
        [rollout_target("a", 8, 5, 5), rollout_target("b", 5, 5, 5)],
        {"a": rollout.RolloutStep(), "b": rollout.RolloutStep()},
    ),
    "the budget is spent by name": (
        [rollout_target("a", 5, 5, 0), rollout_target("b", 5, 5, 0)],
        {"a": rollout.RolloutStep(None, 0, 2)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("targets", "expected"), ROLLOUTS.values(), ids=ROLLOUTS)
def test_rollouts(targets: list[rollout.RolloutTarget], expected: dict[str, rollout.RolloutStep]) -> None:
    fleet = rollout.RolloutFleet(0, 2, sum(each.replicas for each in targets), targets)
    assert rollout.plan_rollout(fleet).steps == expected
