"""What a virtual node offers, where pods are larger in the owner than the pool's scheduler counts them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.manifests import pod
from vk_bridge.core.pod.admitted_sizes import (
    AdmittedSizes,
    added_sizes_text,
    allocatable_for_pool,
    is_refused_by_its_node,
    sizes_asked,
    sizes_held,
)

FREE = {"cpu": 8000, "memory": 1 << 30, "pods": 110}
REFUSED: dict[str, Any] = {"phase": "Failed", "reason": "OutOfcpu", "message": "no"}


def cpu_sizes(counted: int, admitted: int) -> AdmittedSizes:
    return AdmittedSizes({"cpu": counted, "pods": 1}, {"cpu": admitted, "pods": 1})


def running_pod(cpu: str, **status: Any) -> dict[str, Any]:
    return {**pod("one", cpu=cpu, memory="64Mi"), "status": {"phase": "Running", **status}}


@pytest.mark.parametrize(
    ("held", "refused", "cpu", "pods"),
    [
        pytest.param([], [], 8000, 110, id="nothing is there"),
        pytest.param([cpu_sizes(2000, 2000)], [], 8000, 110, id="as it was scheduled"),
        pytest.param([cpu_sizes(2000, 3000)], [], 7000, 110, id="a sidecar is added"),
        pytest.param([cpu_sizes(7000, 1000)], [], 8000, 110, id="smaller there: no more than is there is ever shown"),
        pytest.param(
            [cpu_sizes(7000, 1000), cpu_sizes(1000, 2000)], [], 7000, 110, id="what one has less is no other's"
        ),
        pytest.param(
            [AdmittedSizes({}, {"cpu": 3000, "pods": 1})], [], 5000, 109, id="its pool pod is gone, it is not"
        ),
        pytest.param([cpu_sizes(2000, 9000)], [], 1000, 110, id="more than there is"),
        pytest.param([cpu_sizes(2000, 20000)], [], 0, 110, id="far more than there is"),
        pytest.param([], [cpu_sizes(2000, 3000)], 5999, 110, id="two of these fit"),
        pytest.param([cpu_sizes(2000, 3000)] * 2, [cpu_sizes(2000, 3000)], 5999, 110, id="beside two no third does"),
        pytest.param([], [cpu_sizes(0, 3000)], 8000, 110, id="what asks for none is bound whatever is shown"),
        pytest.param([], [cpu_sizes(2000, 2000)], 8000, 110, id="refused for another reason"),
        pytest.param([], [cpu_sizes(2000, 3000), cpu_sizes(1000, 4000)], 2999, 110, id="the one that grew most counts"),
    ],
)
def test_what_is_offered(held: list[AdmittedSizes], refused: list[AdmittedSizes], cpu: int, pods: int) -> None:
    assert allocatable_for_pool(FREE, held, refused) == {"cpu": cpu, "memory": 1 << 30, "pods": pods}


@given(
    free=st.integers(0, 64_000),
    asked=st.integers(1, 8000),
    more=st.integers(0, 8000),
    others=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9))),
)
def test_as_many_of_a_refused_kind_are_bound_as_are_let_in(
    free: int, asked: int, more: int, others: list[tuple[int, int]]
) -> None:
    """However many the scheduler binds before the bridge looks again."""
    there = [cpu_sizes(100 * counted, 100 * admitted) for counted, admitted in others]
    room = free - sum(max(pod.counted["cpu"], pod.admitted["cpu"]) for pod in there)
    shown = allocatable_for_pool({"cpu": free}, there, [cpu_sizes(asked, asked + more)])["cpu"]
    bound = max(0, shown - sum(pod.counted["cpu"] for pod in there)) // asked
    assert bound == max(0, room) // (asked + more)


def test_what_pods_hold_and_what_they_asked_for() -> None:
    real, shown = running_pod("3"), running_pod("2")
    assert sizes_held(real, shown).added_amounts() == {"cpu": 1000}
    assert sizes_held(real, None).added_amounts() == {"cpu": 3000, "memory": 64 << 20, "pods": 1}
    assert sizes_held(running_pod("3", phase="Failed"), shown) == AdmittedSizes({}, {})
    assert sizes_held(real, running_pod("2", phase="Failed")).added_amounts() == {
        "cpu": 3000,
        "memory": 64 << 20,
        "pods": 1,
    }
    assert sizes_asked(running_pod("3", phase="Failed"), running_pod("2", phase="Failed")).added_amounts() == {
        "cpu": 1000
    }
    assert (added_sizes_text(real, shown), added_sizes_text(real, real)) == ("cpu 1000m", "")


def test_a_real_pod_that_is_resized_in_place_holds_what_it_was_promised_until_it_is_done() -> None:
    """Asked back to 2 cores, and its node has 5 of them for it still."""
    status = {"name": "main", "allocatedResources": {"cpu": "5"}, "resources": {"requests": {"cpu": "5"}}}
    real = running_pod("2", containerStatuses=[{**status, "name": running_pod("2")["spec"]["containers"][0]["name"]}])
    assert sizes_held(real, running_pod("2")).added_amounts() == {"cpu": 3000}


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        pytest.param(REFUSED, True, id="not let in"),
        pytest.param({**REFUSED, "containerStatuses": [{"name": "main"}]}, False, id="it ran, and failed"),
        pytest.param(
            {**REFUSED, "message": "Pod was rejected: x", "containerStatuses": [{"name": "main"}]},
            True,
            id="not let in, by a kubelet that tells of containers all the same",
        ),
        pytest.param({**REFUSED, "phase": "Pending"}, False, id="it waits"),
        pytest.param({"phase": "Failed"}, False, id="nobody says why"),
    ],
)
def test_which_pod_its_node_has_refused(status: dict[str, Any], refused: bool) -> None:
    assert is_refused_by_its_node({"status": status}) is refused
