"""Recovering a fleet: each workload once, as it runs, whatever comes twice, late or in parts; never a deletion."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.api.adoption_inquiries import AdoptionInquiry
from planner.core.requests import recovering
from spillway.api import RecoverFleetRequest, RequestError
from spillway.events import FOUND, FOUND_REFUSED, STATE_PRESENT, AdoptionAsked, WorkloadFound
from spillway.model import NO_GENERATION, Generation

from .builders import Fleet
from .test_adopting import (
    KEY,
    apply_events,
    fleet_of_two,
    parts_by_cluster,
    report_status,
    settle_leaving_workloads,
    workload_found,
)

YES = RecoverFleetRequest("f0", confirmed=True)
BOTH = (workload_found("own-1", 3, version=Generation(90, 1)), workload_found("own-2", 2, version=Generation(80, 1)))
ASKED = AdoptionAsked(Generation(9, 1), "", "", ("own-1", "own-2"), "f0")


def end_of_answers(cluster: str, objects: int = 1, **more: Any) -> WorkloadFound:
    nameless = WorkloadFound(Generation(9, 1), "", "", cluster, FOUND, "", "", b"", 0, NO_GENERATION, (), objects)
    return replace(nameless, **more)


ENDS = {"own-1": end_of_answers("own-1"), "own-2": end_of_answers("own-2")}


def recover_and_apply(
    own: Fleet, said: Any = BOTH, request: RecoverFleetRequest = YES, events_max: int = 100
) -> recovering.RecoveryDecision:
    recovered = recovering.decide_recovery(own.state, request, said, ENDS, own.next_moment(), events_max)
    apply_events(own, recovered.events)
    return recovered


def recovered_states(recovered: recovering.RecoveryDecision) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in recovered.reply.workloads]


def test_without_a_yes_it_only_says_what_it_would_do() -> None:
    own = fleet_of_two()
    recovered = recover_and_apply(own, request=RecoverFleetRequest("f0"))
    assert recovered.events == ()
    assert recovered_states(recovered) == [("web", "Found")]
    assert recovered.reply.workloads[0].replicas == (("own-1", 3), ("own-2", 2))
    assert own.state.workloads == {}


def test_each_workload_is_declared_as_it_runs() -> None:
    own = fleet_of_two()
    assert recovered_states(recover_and_apply(own)) == [("web", "Recovering")]
    assert parts_by_cluster(own) == {"own-1": (3, True), "own-2": (2, True)}
    workload = own.state.workloads[KEY]
    assert workload.declared.replicas == 5
    assert {part.found_fleet for part in workload.parts.values()} == {"f0"}


def test_again_it_declares_nothing_twice() -> None:
    own = fleet_of_two()
    recover_and_apply(own)
    before = own.state.workloads[KEY].placement
    again = recover_and_apply(own)
    assert (again.events, recovered_states(again)) == ((), [("web", "Recovering")])
    assert own.state.workloads[KEY].placement == before


def test_more_than_fits_a_step_waits_for_the_next() -> None:
    own = fleet_of_two()
    web = workload_found("own-1", 1)
    named = [
        replace(web, name=f"w{n}", manifest=web.manifest.replace(b'"name": "web"', f'"name": "w{n}"'.encode()))
        for n in range(5)
    ]
    first = recover_and_apply(own, named, events_max=4)
    assert first.reply.remaining == 3
    assert recover_and_apply(own, named, events_max=4).reply.remaining == 1
    assert recover_and_apply(own, named, events_max=4).reply.remaining == 0
    assert len(own.state.workloads) == 5


UNREADABLE = BOTH[0].manifest.replace(b"containers", b"container")
REFUSED = {
    "templates differ": ((workload_found("own-1", 3), workload_found("own-2", 2, "app:2")), "first in spec.template"),
    "refused by its cluster": ((workload_found("own-1", 3, state=FOUND_REFUSED, message="going"),), "own-1: going"),
    "cannot be read": ((workload_found("own-1", 3, manifest=UNREADABLE),), "container"),
}


@pytest.mark.parametrize(("said", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_recovered_is_left_with_the_reason(said: Any, words: str) -> None:
    own = fleet_of_two()
    recovered = recover_and_apply(own, said)
    assert recovered.events == ()
    assert recovered_states(recovered) == [("web", "Refused")]
    assert words in recovered.reply.workloads[0].message


def test_a_name_that_is_declared_already_is_left() -> None:
    own = fleet_of_two()
    recover_and_apply(own, (workload_found("own-1", 3, uid="another"),))
    assert recovered_states(recover_and_apply(own)) == [("web", "Refused")]


BAD = {
    "this fleet's own": (RecoverFleetRequest("f1"), "INVALID_ARGUMENT"),
    "no id": (RecoverFleetRequest(""), "INVALID_ARGUMENT"),
    "not a label": (RecoverFleetRequest("a=b"), "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize(("request_", "code"), BAD.values(), ids=BAD)
def test_bad_requests(request_: RecoverFleetRequest, code: str) -> None:
    own = fleet_of_two()
    with pytest.raises(RequestError) as raised:
        recovering.recovery_question(own.state, request_, "f1", own.next_moment())
    assert raised.value.code == code


def test_every_cluster_must_be_heard() -> None:
    own = fleet_of_two()
    assert recovering.recovery_question(own.state, YES, "f1", own.next_moment()).clusters == ("own-1", "own-2")
    own.now += 100
    with pytest.raises(RequestError) as raised:
        recovering.recovery_question(own.state, YES, "f1", own.next_moment())
    assert raised.value.code == "FAILED_PRECONDITION"
    own.send_heartbeats()
    unreachable = {
        **ENDS,
        "own-2": end_of_answers("own-2", state=FOUND_REFUSED, message="cluster own-2 is unreachable"),
    }
    with pytest.raises(RequestError) as raised:
        recovering.decide_recovery(own.state, YES, BOTH, unreachable, own.next_moment(), 100)
    assert "own-2 is unreachable" in raised.value.text


def test_answers_are_complete_in_any_order_and_twice() -> None:
    inquiry = AdoptionInquiry(ASKED)
    for answer in (
        end_of_answers("own-2"),
        BOTH[1],
        BOTH[1],
        end_of_answers("own-1"),
        end_of_answers("mars"),
        end_of_answers("own-1"),
    ):
        inquiry.note_answer(answer)
        assert inquiry.unanswered_clusters() == ["own-1"] or inquiry.unanswered_clusters() == ["own-1", "own-2"]
    inquiry.note_answer(BOTH[0])
    assert inquiry.unanswered_clusters() == []
    assert inquiry.complete.is_set()


@given(st.lists(st.sampled_from(["first", "second", "both", "late", "taken over"]), max_size=12))
def test_whatever_is_found_again_changes_nothing_that_is_declared(steps: list[str]) -> None:
    """Duplicated and late answers, after a recovery that was complete: the same parts, nothing removed."""
    own = fleet_of_two()
    recover_and_apply(own)
    uids = {name: part.found_uid for name, part in own.state.workloads[KEY].parts.items()}
    for step in steps:
        match step:
            case "taken over":
                for cluster, part in own.state.workloads[KEY].parts.items():
                    report_status(own, cluster, STATE_PRESENT, part.replicas)
                settle_leaving_workloads(own)
            case "late":
                assert recover_and_apply(own, (workload_found("own-1", 9), workload_found("own-2", 0))).events == ()
            case _:
                said = {"first": BOTH[:1], "second": BOTH[1:], "both": (*BOTH, *BOTH)}[step]
                assert recover_and_apply(own, said).events == ()
        workload = own.state.workloads[KEY]
        assert {name: part.replicas for name, part in workload.parts.items()} == {"own-1": 3, "own-2": 2}
        assert not any(part.removing or part.disowning for part in workload.parts.values())
        assert all(part.found_uid in ("", uids[name]) for name, part in workload.parts.items())
