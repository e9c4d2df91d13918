"""The ages of all clusters at once are those of one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.all_clusters import ClusterAges, has_heard_all_since, has_unheard_cluster
from spillway.feasibility.cluster_view import NEVER, ClusterView

from .builders import Fleet, joined_cluster, node_row

SECONDS = st.one_of(st.just(float(NEVER)), st.floats(0, 1e6), st.integers(0, 2000).map(lambda half: half / 2000))
HEARD = st.tuples(SECONDS, st.one_of(st.just(NEVER), st.integers(0, 100_000)), st.booleans(), st.booleans())


@given(heard=st.lists(st.tuples(HEARD, HEARD), max_size=6), later=st.floats(0, 100), age_max=st.floats(0, 100))
def test_the_ages_of_all_are_those_of_each(
    heard: list[tuple[tuple[float, int, bool, bool], ...]], later: float, age_max: float
) -> None:
    """As time passes, and after heartbeats; also where it is counted that any were heard."""
    ages, counted, views = (
        ClusterAges(),
        ClusterAges(),
        {f"c{index}": ClusterView(f"c{index}") for index in range(len(heard))},
    )
    for step in (0, 0, 1):
        for view, told in zip(views.values(), heard, strict=True):
            view.heard_at, view.age_ms, view.is_incomplete, listed = told[step]
            view.epoch = 1 if listed else NEVER
        for now in (1e6, 1e6 + later):
            stale = {name for name, view in views.items() if view.staleness_reason(now, age_max)}
            for each, number in ((ages, None), (counted, step)):
                rounded = {name: age_ms(view, now) for name, view in views.items()}
                assert each.ages_ms(views, now, age_max, number) == rounded
                assert each.clusters_not_fresh(views, now, age_max, number) == stale


def cluster_view(name: str, *, joined: bool, heard_at: float) -> ClusterView:
    view = ClusterView(name)
    view.joined, view.heard_at = joined_cluster(name) if joined else None, heard_at
    return view


HEARD_VIEW = cluster_view("own-1", joined=True, heard_at=7.0)


@pytest.mark.parametrize(
    ("views", "unheard"),
    [
        pytest.param([], False, id="no cluster"),
        pytest.param([HEARD_VIEW], False, id="heard"),
        pytest.param([cluster_view("own-1", joined=True, heard_at=0.0)], False, id="heard at the clock's beginning"),
        pytest.param([cluster_view("own-2", joined=True, heard_at=NEVER)], True, id="joined and never heard"),
        pytest.param([HEARD_VIEW, cluster_view("own-2", joined=True, heard_at=NEVER)], True, id="one of two"),
        pytest.param([cluster_view("own-2", joined=False, heard_at=NEVER)], False, id="not of the fleet"),
    ],
)
def test_a_cluster_of_the_fleet_is_awaited_until_it_was_heard(views: list[ClusterView], unheard: bool) -> None:
    assert has_unheard_cluster({str(number): view for number, view in enumerate(views)}) is unheard


def test_all_are_heard_since_a_time_once_what_each_said_is_of_then_or_later() -> None:
    """A record that comes later may be of before; a cluster that takes nothing new for its age is not waited for."""
    fleet = Fleet(own_1=[node_row("a")], own_2=[node_row("a")])
    fleet.state.apply_event(joined_cluster("own-3"), fleet.now)  # Joined, and never heard.
    since = fleet.now + 1

    def are_all_heard(age_max_seconds: float = 30) -> bool:
        return has_heard_all_since(fleet.state.clusters, since, fleet.now, age_max_seconds)

    fleet.now += 2
    fleet.report_change("own-1")
    fleet.report_change("own-2", age_ms=1500)
    assert not are_all_heard()
    fleet.report_change("own-2", age_ms=900)
    assert are_all_heard()
    fleet.report_change("own-2", age_ms=40_000)
    assert are_all_heard()
    assert not are_all_heard(age_max_seconds=60)
