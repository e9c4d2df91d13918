"""What counts of a lent node: its owner's row decides for both clusters, whatever the ages of the two records."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import moves
from planner.core.requests.answers import list_clusters
from spillway.columns import NO_NODES, columns_of
from spillway.events import PHASE_LEAVING, PHASE_LOST, ClusterLeft
from spillway.lending_marks import LENT_CLUSTER, LENT_NODE, POOL_CLUSTER, name_within_label_length, virtual_node_name
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED, NodeRow, Toleration

from .builders import EPOCH, Fleet, capacity_changed, capacity_reported, joined_cluster, make_shape, node_row

CORES = 4
ANYWHERE = make_shape(1000, tolerations=(Toleration("", "Exists", "", ""),))
"""A replica of one core that tolerates everything."""
LONG = "n" * 100
Listed = tuple[int, int, int, int]
"""nodes, lent, virtual, cores"""


def owned_node(state: int = NODE_OWNED, name: str = "n1", pool: str = "") -> NodeRow:
    """pool: that the row names; empty: the row is of an older snapshot."""
    return node_row(name, state=state, labels={POOL_CLUSTER: pool} if pool else {})


def virtual_node(owner: str = "own", name: str = "n1", cores: int = CORES) -> NodeRow:
    labels = {LENT_CLUSTER: owner, LENT_NODE: name_within_label_length(name)}
    return node_row(virtual_node_name(owner, name), 1000 * cores, labels=labels)


def certain_cores(fleet: Fleet, name: str) -> int:
    """Replicas of one core that a cluster certainly takes; asked in both ways that the planner has."""
    alone = fleet.state.room_in_cluster(name, ANYWHERE, False, fleet.now).certain
    assert fleet.state.rooms_of_fleet(ANYWHERE, fleet.now)[name, False].certain == alone
    return alone


@pytest.mark.parametrize(
    ("state", "owned", "pooled"), [(NODE_OWNED, CORES, 0), (NODE_LENT, 0, CORES), (NODE_RECALLED, 0, 0)]
)
@pytest.mark.parametrize("name", ["n1", LONG])
def test_the_owners_row_alone_decides(state: int, owned: int, pooled: int, name: str) -> None:
    fleet = Fleet(own=[owned_node(NODE_OWNED, name)], pool=[virtual_node(name=name), node_row("pools-own")])
    assert (certain_cores(fleet, "own"), certain_cores(fleet, "pool")) == (CORES, CORES)
    fleet.report_change("own", [owned_node(state, name)])
    assert (certain_cores(fleet, "own"), certain_cores(fleet, "pool")) == (owned, CORES + pooled)
    fleet.report_change("own", removed=(name,))
    assert (certain_cores(fleet, "own"), certain_cores(fleet, "pool")) == (0, CORES)


def test_a_virtual_node_whose_owner_is_not_known_has_left_or_is_named_by_half_counts_nowhere() -> None:
    half = node_row("half", labels={LENT_NODE: "n1"})
    fleet = Fleet(pool=[virtual_node(), half])
    assert certain_cores(fleet, "pool") == 0
    fleet.join_cluster(joined_cluster("own"), [owned_node(NODE_LENT)])
    assert certain_cores(fleet, "pool") == CORES
    fleet.state.apply_event(ClusterLeft("own"), fleet.now)
    assert certain_cores(fleet, "pool") == 0


def test_of_two_virtual_nodes_for_one_node_none_counts_until_one_is_gone() -> None:
    """It went back from one pool and is lent to another; the first one's record is older than that."""
    fleet = Fleet(own=[owned_node(NODE_LENT)], pool=[virtual_node()], other=[virtual_node()])
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "other")) == (0, 0)
    fleet.report_change("pool", removed=(virtual_node().name,))
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "other")) == (0, CORES)


def test_a_virtual_node_counts_in_the_pool_alone_that_the_owners_row_names() -> None:
    """Whoever writes nodes in another cluster, labelled as virtual nodes, takes no lent room from the pool."""
    fleet = Fleet(
        own=[owned_node(NODE_LENT, pool="pool")], pool=[virtual_node()], evil=[virtual_node(), node_row("evils-own")]
    )
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "evil")) == (CORES, CORES)
    fleet.report_change("own", [owned_node(NODE_LENT, pool="evil")])
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "evil")) == (0, 2 * CORES)
    fleet.report_change("own", [owned_node(NODE_RECALLED, pool="evil")])
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "evil")) == (0, CORES)
    fleet.report_change("own", [owned_node(NODE_LENT, pool="nobody")])
    assert (certain_cores(fleet, "pool"), certain_cores(fleet, "evil")) == (0, CORES)


def test_of_two_virtual_nodes_of_the_pool_that_is_named_none_counts() -> None:
    twice = replace(virtual_node(), name="another")
    fleet = Fleet(own=[owned_node(NODE_LENT, pool="pool")], pool=[virtual_node(), twice])
    assert certain_cores(fleet, "pool") == 0
    fleet.report_change("pool", removed=("another",))
    assert certain_cores(fleet, "pool") == CORES


def test_an_owner_under_two_names_counts_by_its_first_ones_row() -> None:
    fleet = Fleet(own=[owned_node()], again=[owned_node(NODE_LENT)], pool=[virtual_node(owner="again")])
    fleet.state.apply_event(replace(joined_cluster("again"), ordinal=1), fleet.now)
    for name, state in (("own", NODE_OWNED), ("again", NODE_LENT)):
        fleet.report_full_block(name, [owned_node(state)], api_server="one")
        fleet.send_heartbeats(name)
    assert (certain_cores(fleet, "own"), certain_cores(fleet, "again"), certain_cores(fleet, "pool")) == (CORES, 0, 0)
    fleet.report_change("own", [owned_node(NODE_LENT)])
    assert (certain_cores(fleet, "own"), certain_cores(fleet, "again"), certain_cores(fleet, "pool")) == (0, 0, CORES)


def test_who_waits_for_room_is_looked_at_again_when_an_owners_row_lets_the_pool_have_some() -> None:
    fleet = Fleet(own=[owned_node()], pool=[virtual_node()])
    before = fleet.state.room_revision("pool")
    fleet.report_change("own", [owned_node(NODE_LENT)])
    assert fleet.state.room_revision("pool") != before


@pytest.mark.parametrize(
    ("state", "owners", "pools"),
    [
        (NODE_OWNED, (2, 0, 0, 2 * CORES), (1, 0, 0, CORES)),
        (NODE_LENT, (1, 1, 0, CORES), (2, 0, 1, 2 * CORES)),
        (NODE_RECALLED, (1, 1, 0, CORES), (1, 0, 0, CORES)),
    ],
)
def test_what_is_listed_of_clusters_counts_each_node_once(state: int, owners: Listed, pools: Listed) -> None:
    fleet = Fleet(own=[owned_node(state), node_row("n2")], pool=[virtual_node(), node_row("pools-own")])
    listed = {
        one.cluster: (one.nodes, one.nodes_lent, one.nodes_virtual, dict(one.allocatable)["cpu"] // 1000)
        for one in list_clusters(fleet.state, fleet.now).clusters
    }
    assert listed == {"own": owners, "pool": pools}


@pytest.mark.parametrize("leaving", ["own", "pool"])
def test_a_cluster_that_leaves_stays_until_no_loan_is_left_unless_it_is_lost(leaving: str) -> None:
    fleet = Fleet(own=[owned_node(NODE_RECALLED)], pool=[virtual_node(cores=0)])
    fleet.state.apply_event(replace(joined_cluster(leaving), phase=PHASE_LEAVING), fleet.now)
    assert moves.clusters_that_left(fleet.state) == ()
    fleet.state.apply_event(replace(joined_cluster(leaving), phase=PHASE_LOST), fleet.now)
    assert moves.clusters_that_left(fleet.state) == (ClusterLeft(leaving),)
    fleet.state.apply_event(replace(joined_cluster(leaving), phase=PHASE_LEAVING), fleet.now)
    fleet.report_change("pool", removed=(virtual_node().name,))
    fleet.report_change("own", [owned_node()])
    assert moves.clusters_that_left(fleet.state) == (ClusterLeft(leaving),)


def test_a_node_like_a_virtual_one_is_an_ordinary_one() -> None:
    fleet = Fleet(own=[owned_node(NODE_LENT)], pool=[virtual_node()])
    nodes = fleet.state.clusters["pool"].nodes
    copied = nodes.empty_node_like(0, "copy")
    fleet.report_change("pool", [copied])
    assert certain_cores(fleet, "pool") == 2 * CORES


Records = list[list[NodeRow]]
"""What an API shows, one record after the other."""
LOANS = st.lists(st.sampled_from([("pool", True), ("other", True), ("pool", False)]), min_size=1, max_size=3)
"""Of one node, one after the other: to which pool, and whether the virtual node was opened."""


def lending_histories(loans: list[tuple[str, bool]], ended: bool) -> tuple[Records, dict[str, Records]]:
    """Returns what the APIs of the owner and of the two pools show when the bridge keeps to the protocol.

    ended: whether the last loan has ended, too.
    """
    closed = replace(virtual_node(cores=0), unschedulable=True)
    pools_own = node_row("pools-own")
    owner, pools = [[owned_node()]], {"pool": [[pools_own]], "other": [[pools_own]]}
    for number, (pool, opened) in enumerate(loans):
        owner.append([owned_node(NODE_LENT)])
        pools[pool] += [[pools_own, closed], *([[pools_own, virtual_node()]] if opened else [])]
        if ended or number + 1 < len(loans):
            owner += [[owned_node(NODE_RECALLED)], [owned_node()]]
            pools[pool] += [[pools_own, closed], [pools_own]]
    return owner, pools


@given(loans=LOANS, ended=st.booleans(), data=st.data())
def test_countable_cores_never_exceed_physical_ones(
    loans: list[tuple[str, bool]], ended: bool, data: st.DataObject
) -> None:
    """In every order of the clusters' records, each also told again or by another collector."""
    owner, pools = lending_histories(loans, ended)
    left = {"own": owner, **pools}
    order = data.draw(st.permutations([name for name, records in left.items() for _ in records[1:]]))
    hows = data.draw(st.lists(st.sampled_from(["next", "anew"]), min_size=len(order), max_size=len(order)))
    fleet = Fleet(own=left["own"][0], pool=left["pool"][0], other=left["other"][0])
    at, epochs, sequences = (dict.fromkeys(left, first) for first in (0, EPOCH, 1))

    def report_and_check(name: str, how: str) -> None:
        at[name] += how != "same"
        rows = left[name][at[name]]
        epochs[name], sequences[name] = epochs[name] + (how == "anew"), sequences[name] + 1
        said = {"epoch": epochs[name], "sequence": sequences[name]}
        fleet.state.apply_event(capacity_reported(name, rows, **said), fleet.now, columns=columns_of(rows))
        sequences[name] += 1
        beat = capacity_changed(name, sequences[name], epoch=epochs[name])
        fleet.state.apply_event(beat, fleet.now, columns=NO_NODES)
        owned, first, second = (certain_cores(fleet, one) for one in left)
        assert owned + (first - CORES) + (second - CORES) <= CORES

    for name, how in zip(order, hows, strict=True):
        report_and_check(name, "same")
        report_and_check(name, how)
    pool, opened = loans[-1]
    assert certain_cores(fleet, "own") == (CORES if ended else 0)
    for name in pools:
        assert certain_cores(fleet, name) == CORES + (CORES if name == pool and opened and not ended else 0)
