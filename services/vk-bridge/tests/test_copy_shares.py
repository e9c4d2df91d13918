"""How many bytes of copies a namespace of a pool may have in one owner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_bridge.core.pod.conversion import SECRET, CopyPlace
from vk_bridge.core.pod.copy_shares import HeldCopy, may_hold_copies, may_remove_copy, never_fits_text

POOL, MOST = "pool-1", 100


def place(name: str, namespace: str = "shop") -> CopyPlace:
    return CopyPlace(SECRET, namespace, name)


def held_copies(*copies: tuple[CopyPlace, int], pool: str = POOL) -> dict[CopyPlace, HeldCopy]:
    return {copy: HeldCopy(pool, size) for copy, size in copies}


A, B, OF_BANK = place("a"), place("b"), place("c", "bank")


@pytest.mark.parametrize(
    ("held", "wanted", "may"),
    [
        pytest.param({}, {A: 50}, True, id="as much as it leaves free"),
        pytest.param({}, {A: 51}, False, id="more than it leaves free"),
        pytest.param({}, {A: 25, B: 26}, False, id="together more than it leaves free"),
        pytest.param(held_copies((OF_BANK, 50)), {A: 25}, True, id="beside another namespace: half of what is left"),
        pytest.param(held_copies((OF_BANK, 50)), {A: 26}, False, id="beside another namespace: more than half of it"),
        pytest.param(held_copies((A, 30)), {B: 21}, False, id="beside its own"),
        pytest.param(held_copies((A, 30), pool="pool-2"), {B: 35}, True, id="the same namespace of another pool"),
        pytest.param(held_copies((A, 30)), {A: 50}, True, id="it grows to its share"),
        pytest.param(held_copies((A, 30)), {A: 51}, False, id="it grows beyond its share"),
        pytest.param(held_copies((A, 50), (OF_BANK, 25)), {A: 50}, True, id="as large as before, now beyond its share"),
        pytest.param(held_copies((A, 50), (OF_BANK, 25)), {A: 49}, True, id="smaller, still beyond its share"),
        pytest.param(held_copies((A, 50), (OF_BANK, 25)), {A: 40, B: 10}, True, id="one grows by what another loses"),
    ],
)
def test_which_copies_may_be_there(held: dict[CopyPlace, HeldCopy], wanted: dict[CopyPlace, int], may: bool) -> None:
    assert may_hold_copies(held, wanted, POOL, MOST) is may


@given(asked=st.lists(st.tuples(st.sampled_from(["shop", "bank", "web"]), st.integers(0, 60)), max_size=30))
def test_whoever_asks_first_leaves_the_next_namespace_as_much(asked: list[tuple[str, int]]) -> None:
    held: dict[CopyPlace, HeldCopy] = {}
    for number, (namespace, size) in enumerate(asked):
        wanted = {place(f"s{number}", namespace): size}
        if may_hold_copies(held, wanted, POOL, MOST):
            held |= {copy: HeldCopy(POOL, size) for copy in wanted}
    total = sum(one.size_bytes for one in held.values())
    assert total <= MOST
    if total:
        newest = list(held)[-1].namespace
        own = sum(one.size_bytes for copy, one in held.items() if copy.namespace == newest)
        assert own <= MOST - total or not list(held.values())[-1].size_bytes


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        pytest.param({A: 25, B: 25}, "", id="half of all"),
        pytest.param(
            {A: 25, B: 26},
            "ConfigMaps and Secrets: 51 bytes: expected at most 50, half of what a cluster keeps of all pods "
            "(copies_bytes_max 100)",
            id="more than half",
        ),
    ],
)
def test_which_pods_copies_are_never_there(wanted: dict[CopyPlace, int], why: str) -> None:
    assert never_fits_text(wanted, MOST) == why


@pytest.mark.parametrize(
    ("unused_seconds", "lends_nothing", "may"),
    [
        pytest.param(0.0, False, False, id="used now"),
        pytest.param(599.0, False, False, id="unused for less than it is kept"),
        pytest.param(600.0, False, True, id="unused for as long as it is kept"),
        pytest.param(0.0, True, True, id="just unused, and the owner lends nothing"),
    ],
)
def test_which_unused_copies_are_removed(unused_seconds: float, lends_nothing: bool, may: bool) -> None:
    assert may_remove_copy(unused_seconds, 600.0, lends_nothing=lends_nothing) is may
