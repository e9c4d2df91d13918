"""The accounting itself can fail: each kind of planted loss is found, and what is right is not called wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.addresses import PLACEMENTS, SCALE, workload_key
from spillway.bus import Record
from spillway.events import PlacementDecided
from spillway.events_scaling import ScaleDecided
from spillway.model import Generation, Part
from spillway_chaos.audit import Door, MemberAudit
from spillway_chaos.ledger import Ledger, Place, Placed, Seen, Stopped, finding_count_by_kind
from spillway_chaos.log_audit import LogAudit


def _ledger_of_three_workloads() -> Ledger:
    """web was applied with 4 and scaled to 6 and back to 5; old was deleted; new was asked for without an answer."""
    ledger = Ledger()
    for name, replicas in (("web", 4), ("web", 6), ("web", 5), ("old", 2)):
        ledger.note_request(name, replicas)
        ledger.note_acknowledged(name, replicas)
    ledger.note_delete_request("old")
    ledger.note_delete_acknowledged("old")
    ledger.note_request("new", 3)
    return ledger


PLACED = {"web": Placed(5, 0, {"own-1": 3, "own-2": 2})}
SEEN: dict[Place, Seen] = {("own-1", "web"): Seen((3,), 3, 0), ("own-2", "web"): Seen((2,), 2, 0)}


def test_what_is_as_it_was_acknowledged_is_right() -> None:
    """Whether the unanswered request was carried out or not."""
    ledger = _ledger_of_three_workloads()
    assert list(ledger.find_unsettled(PLACED, SEEN)) == []
    placed = PLACED | {"new": Placed(3, 0, {"own-1": 3})}
    assert list(ledger.find_unsettled(placed, SEEN | {("own-1", "new"): Seen((3,), 1, 2)})) == []


def test_a_delete_without_an_answer_may_have_been_carried_out_or_not() -> None:
    ledger = _ledger_of_three_workloads()
    ledger.note_delete_request("web")
    assert list(ledger.find_unsettled({}, {})) == []
    assert list(ledger.find_unsettled({"web": Placed(5, 0, {"own-1": 5}, deleting=True)}, {})) == []
    assert list(ledger.find_unsettled(PLACED, SEEN)) == []
    assert finding_count_by_kind(ledger.find_unsettled({"web": Placed(4, 0, {"own-1": 3, "own-2": 1})}, SEEN))["lost"]


@pytest.mark.parametrize(
    ("kind", "placed", "seen"),
    [
        pytest.param("lost", {}, {}, id="the-planner-forgot-it"),
        pytest.param("lost", {"web": Placed(6, 0, {"own-1": 4, "own-2": 2})}, SEEN, id="the-last-scale-was-forgotten"),
        pytest.param("lost", {"web": Placed(5, 2, {"own-1": 3})}, SEEN, id="replicas-wait"),
        pytest.param("lost", {"web": Placed(5, 0, {"own-1": 4})}, SEEN, id="parts-do-not-add-up"),
        pytest.param("lost", PLACED, {("own-1", "web"): Seen((3,), 3, 0)}, id="an-object-is-missing"),
        pytest.param("lost", PLACED, SEEN | {("own-2", "web"): Seen((2,), 1, 0)}, id="a-pod-is-missing"),
        pytest.param("lost", PLACED | {"old": Placed(2, 0, {"own-1": 2})}, SEEN, id="a-delete-was-forgotten"),
        pytest.param("lost", PLACED, SEEN | {("own-1", "old"): Seen((2,), 2, 0)}, id="a-delete-was-not-done"),
        pytest.param("doubled", PLACED, SEEN | {("own-1", "web"): Seen((3, 3), 6, 0)}, id="two-objects"),
        pytest.param("doubled", PLACED, SEEN | {("cloud-1", "web"): Seen((2,), 2, 0)}, id="in-a-third-cluster"),
        pytest.param("doubled", PLACED, SEEN | {("own-1", "web"): Seen((3,), 4, 0)}, id="a-pod-too-many"),
        pytest.param("doubled", PLACED, SEEN | {("own-1", "web"): Seen((3,), 3, 1)}, id="a-pod-that-waits"),
        pytest.param("doubled", PLACED, SEEN | {("own-1", "nobody"): Seen((1,), 1, 0)}, id="nobody-asked-for-it"),
    ],
)
def test_a_planted_error_is_found(kind: str, placed: dict[str, Placed], seen: dict[Place, Seen]) -> None:
    found = list(_ledger_of_three_workloads().find_unsettled(placed, seen))
    assert kind in {finding.kind for finding in found}, found


@pytest.mark.parametrize(
    ("stopped", "deleted"),
    [
        pytest.param({("own-1", "web"): Stopped(1, 1)}, 0, id="a-scale-in-empties-a-cluster"),
        pytest.param({("own-1", "web"): Stopped(0, 2)}, 1, id="one-pod-more-than-was-asked"),
        pytest.param({("own-1", "new"): Stopped(1, 3)}, 4, id="object-and-pods-that-nobody-asked-to-go"),
        pytest.param({("own-1", "old"): Stopped(1, 2)}, 0, id="what-was-deleted-goes"),
    ],
)
def test_deletions_are_held_against_what_was_asked(stopped: dict[Place, Stopped], deleted: int) -> None:
    """And each is said in one round only."""
    ledger = _ledger_of_three_workloads()
    assert finding_count_by_kind(ledger.find_unasked_deletions(stopped))["deleted"] == deleted
    assert list(ledger.find_unasked_deletions(stopped)) == []


def test_a_refused_request_of_an_acknowledged_workload_is_lost() -> None:
    ledger = _ledger_of_three_workloads()
    ledger.note_refusal("web", "scale", "NOT_FOUND: no workload chaos/web")
    assert finding_count_by_kind(ledger.take_refusals())["lost"] == 1
    assert ledger.take_refusals() == []


FIRST = PlacementDecided("chaos", "web", Generation(5, 1), 1, (Part("own-1", Generation(5, 1), 3, 0, 3, False),), 0, "")
PartChange = Callable[[Part], Part]


@pytest.mark.parametrize(
    ("generation", "change", "contradictions"),
    [
        pytest.param(Generation(5, 2), lambda part: part, 0, id="the-same-again"),
        pytest.param(
            Generation(6, 1), lambda part: replace(part, version=Generation(6, 1), replicas=9), 0, id="a-later-turn"
        ),
        pytest.param(Generation(4, 9), lambda part: part, 1, id="a-generation-that-goes-back"),
        pytest.param(
            Generation(5, 1), lambda part: replace(part, version=Generation(5, 2), replicas=9), 1, id="two-at-once"
        ),
        pytest.param(Generation(5, 2), lambda part: replace(part, replicas=4), 1, id="two-parts-at-one-version"),
        pytest.param(
            Generation(5, 2), lambda part: replace(part, version=Generation(4, 1)), 1, id="a-version-that-goes-back"
        ),
    ],
)
def test_contradictions_in_the_log_are_found(generation: Generation, change: PartChange, contradictions: int) -> None:
    then = replace(FIRST, generation=generation, parts=tuple(change(part) for part in FIRST.parts))
    key = workload_key("chaos", "web")
    records = [Record(PLACEMENTS.name, 0, offset, key, event) for offset, event in enumerate((FIRST, then))]
    assert finding_count_by_kind(LogAudit().check_records(records))["contradictory"] == contradictions


@pytest.mark.parametrize(("sequence", "contradictions"), [(3, 0), (2, 1), (1, 1)])
def test_a_size_that_is_decided_twice_or_goes_back_is_found(sequence: int, contradictions: int) -> None:
    """Also where its policy was deleted and declared anew between the two."""
    first = ScaleDecided("chaos", "web", Generation(5, 2), "web", "HorizontalPodAutoscaler", 3, 1, 1, "")
    then = replace(first, generation=Generation(5, sequence), replicas=4)
    key = workload_key("chaos", "web")
    records = [Record(SCALE.name, 0, offset, key, event) for offset, event in enumerate((first, None, then))]
    assert finding_count_by_kind(LogAudit().check_records(records))["contradictory"] == contradictions


def test_the_audit_counts_what_goes_and_what_goes_back() -> None:
    """A running pod, an object, and a version that is lower than before; a pod that never ran is nobody's loss."""
    audit = MemberAudit("own-1", Door("http://127.0.0.1:1", "token"))
    for version in ("7.2", "7.1"):
        audit._apply_event("deployments", {"type": "MODIFIED", "object": _object_with_version(version)})
    for uid, phase in (("a", "Running"), ("b", "Pending")):
        for kind in ("ADDED", "DELETED"):
            audit._apply_event("pods", {"type": kind, "object": _pod_in_phase(uid, phase)})
    assert audit.went_pods == {"web": 1}
    assert audit.seen_by_workload()["web"] == Seen((3,), 0, 0)
    audit._apply_event("deployments", {"type": "DELETED", "object": _object_with_version("7.1")})
    assert audit.went_objects == {"web": 1}
    assert finding_count_by_kind(audit.went_back)["contradictory"] == 1


def _object_with_version(version: str) -> dict[str, object]:
    metadata = {"uid": "object", "name": "web", "annotations": {"spillway.io/placement": version}}
    return {"metadata": metadata, "spec": {"replicas": 3}}


def _pod_in_phase(uid: str, phase: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "name": uid, "labels": {"app": "web"}}, "status": {"phase": phase}}
