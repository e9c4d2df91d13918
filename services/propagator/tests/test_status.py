"""What is said of a workload in a cluster, and when."""

from dataclasses import replace

import msgspec
import pytest

from propagator.core.actions import PropagationRules
from propagator.core.desired import PartTarget
from propagator.core.live import (
    DependencyReference,
    LiveWorkload,
    ObjectMarks,
    workload_from_manifest,
    workload_from_struct,
)
from propagator.core.reconcile import NOT_RUN_AGAIN, WriteHistory, history_from_status
from propagator.core.status import (
    BESIDE_MAX,
    AttemptOutcome,
    RetryRules,
    has_vanished,
    is_changed_status,
    observed_status,
    retry_seconds,
    status_on_hold,
    status_with_changed_field,
    status_with_other_objects,
)
from spillway.events import STATE_ENDED, STATE_PRESENT, STATE_REFUSED, JobEnd, StatusDetails, WorkloadObserved
from spillway.kubernetes.objects import Deployment
from spillway.model import Generation

TARGET = PartTarget("own-1", "shop", "web")
V1, V2 = Generation(1, 1), Generation(1, 2)
FOUND = LiveWorkload(ObjectMarks("u", "1", "f1", "web", False), V1, 5, 4, 3, 2, 1)


def expected_status(
    version: Generation, state: str, message: str, *counts: int, kind: str = "", hold: str = ""
) -> WorkloadObserved:
    details = StatusDetails(hold) if message else None
    return WorkloadObserved("shop", "web", "own-1", 0, 0, version, state, message, *counts, kind, details=details)


def test_nothing_is_said_before_there_is_something() -> None:
    assert observed_status(TARGET, None, None) is None


def test_an_object_is_present_at_the_version_that_it_bears() -> None:
    assert observed_status(TARGET, FOUND, None) == expected_status(V1, "Present", "", 5, 4, 3, 2, 1, kind="Deployment")


def test_what_failed_is_said_at_the_version_that_was_tried() -> None:
    refused = AttemptOutcome(V2, "Refused", "quota")
    assert observed_status(TARGET, None, refused) == expected_status(V2, "Refused", "quota", 0, 0, 0, 0, 0)
    with_object = expected_status(V2, "Refused", "quota", 5, 4, 3, 2, 1, kind="Deployment")
    assert observed_status(TARGET, FOUND, refused) == replace(with_object, found_version=V1)


def test_what_is_absent_has_no_replicas() -> None:
    assert observed_status(TARGET, FOUND, AttemptOutcome(V2, "Absent", "")) == expected_status(
        V2, "Absent", "", *NONE, kind="Deployment"
    )
    assert observed_status(TARGET, None, AttemptOutcome(V2, "Absent", ""), "Job") == expected_status(
        V2, "Absent", "", *NONE, kind="Job"
    )


def test_numbering_is_no_news() -> None:
    current = observed_status(TARGET, FOUND, None)
    assert current is not None
    assert is_changed_status(current, None)
    assert not is_changed_status(current, replace(current, epoch=9, sequence=9))
    assert is_changed_status(replace(current, ready=3), replace(current, epoch=9, sequence=9))


RETRY_RULES = RetryRules(first=1.0, longest=60.0, missing_longest=10.0)


@pytest.mark.parametrize(
    ("state", "retries", "seconds"),
    [
        pytest.param("Refused", 0, 1.0, id="refused"),
        pytest.param("Refused", 3, 8.0, id="refused for the fourth time"),
        pytest.param("Refused", 9, 60.0, id="refused for long"),
        pytest.param("NotOwned", 9, 60.0, id="somebody else's for long"),
        pytest.param("DependencyMissing", 3, 8.0, id="an object was missing four times"),
        pytest.param("DependencyMissing", 9, 10.0, id="an object is missing for long"),
        pytest.param("ReplicasContested", 0, None, id="contested"),
        pytest.param("Absent", 0, None, id="absent"),
        pytest.param("Disowned", 0, None, id="disowned"),
        pytest.param("Ended", 0, None, id="ended"),
    ],
)
def test_when_an_attempt_is_repeated(state: str, retries: int, seconds: float | None) -> None:
    assert retry_seconds(state, retries, RETRY_RULES) == seconds


REFUSED = AttemptOutcome(V2, "Refused", "quota")
NOT_THERE = expected_status(Generation(0, 0), "Absent", "on hold: why", 0, 0, 0, 0, 0, hold="why")
NONE, FIVE = (0, 0, 0, 0, 0), (5, 5, 5, 5, 5)
HELD = {
    "an object": (
        observed_status(TARGET, FOUND, None),
        None,
        expected_status(V1, "Present", "on hold: why", 5, 4, 3, 2, 1, kind="Deployment", hold="why"),
    ),
    "what failed": (
        observed_status(TARGET, None, REFUSED),
        None,
        expected_status(V2, "Refused", "quota; on hold: why", *NONE, hold="why"),
    ),
    "was there": (
        None,
        expected_status(V1, "Present", "", *FIVE),
        expected_status(V1, "Present", "on hold: why", *NONE, hold="why"),
    ),
    "held before": (
        None,
        expected_status(V1, "Refused", "x on hold: y; on hold: so", *FIVE, hold="so"),
        expected_status(V1, "Refused", "x on hold: y; on hold: why", *NONE, hold="why"),
    ),
    "held before by a version before details": (
        None,
        replace(expected_status(V1, "Refused", "x; on hold: so", *FIVE), details=None),
        expected_status(V1, "Refused", "x; on hold: why", *NONE, hold="why"),
    ),
    "never was": (None, None, NOT_THERE),
    "an orphan before": (None, expected_status(V1, "Orphaned", "", *FIVE), NOT_THERE),
}


@pytest.mark.parametrize(("shown", "logged", "expected"), HELD.values(), ids=HELD.keys())
def test_a_hold_is_said_in_the_message_and_its_details_alone(
    shown: WorkloadObserved | None, logged: WorkloadObserved | None, expected: WorkloadObserved
) -> None:
    assert status_on_hold(shown, logged, TARGET, "why") == expected


@pytest.mark.parametrize("state", [STATE_PRESENT, STATE_ENDED])
def test_a_new_owner_knows_a_job_that_ended_though_it_is_on_hold(state: str) -> None:
    """Else somebody's deletion of the object would run the Job anew."""
    outcome = AttemptOutcome(V1, STATE_ENDED, f"Complete: 5 succeeded{NOT_RUN_AGAIN}", job=FIVE_DONE)
    ended = observed_status(TARGET, JOB, None) if state == STATE_PRESENT else observed_status(TARGET, None, outcome)
    rules = PropagationRules("f1")
    assert ended is not None
    assert history_from_status(status_on_hold(ended, None, TARGET, "why"), 0.0, rules) == history_from_status(
        ended, 0.0, rules
    )
    assert history_from_status(ended, 0.0, rules).ended == FIVE_DONE


FIVE_DONE = JobEnd("Complete", 5)
JOB = replace(FOUND, kind="Job", job=FIVE_DONE)
IMAGE = "spec.template.spec.containers[0].image"
SUCCESSIONS = {
    "nothing to tell": observed_status(TARGET, FOUND, None),
    "a Job that is over": observed_status(TARGET, JOB, None),
    "a Job that is suspended": observed_status(TARGET, replace(JOB, job=JobEnd("Suspended", 0)), None),
    "an object that somebody changed": status_with_changed_field(observed_status(TARGET, FOUND, None), IMAGE),
    "a Job that somebody changed": status_with_changed_field(observed_status(TARGET, JOB, None), IMAGE),
    "on hold, too": status_on_hold(
        status_with_changed_field(observed_status(TARGET, JOB, None), IMAGE), None, TARGET, "why"
    ),
    "what failed": status_on_hold(observed_status(TARGET, FOUND, REFUSED), None, TARGET, "why"),
    "a Job that is gone": observed_status(
        TARGET, None, AttemptOutcome(V1, STATE_ENDED, f"Complete: 5 succeeded{NOT_RUN_AGAIN}", job=FIVE_DONE), "Job"
    ),
}


@pytest.mark.parametrize("status", SUCCESSIONS.values(), ids=SUCCESSIONS.keys())
def test_a_new_owner_goes_by_the_details_as_one_of_before_went_by_the_words(status: WorkloadObserved) -> None:
    """Before and after an upgrade, and on the way back: both are in each record."""
    assert history_from_status(status, 0.0, RULES) == history_from_status(replace(status, details=None), 0.0, RULES)


RULES = PropagationRules("f1")


def test_words_that_others_wrote_are_no_details() -> None:
    words = AttemptOutcome(
        V1, STATE_REFUSED, f"changed in the cluster: {IMAGE}, which stays; on hold: Complete: 5 succeeded"
    )
    status = observed_status(TARGET, FOUND, words)
    assert history_from_status(status, 0.0, RULES) == WriteHistory(version=V1, highest=V1)


@pytest.mark.parametrize(("observed", "updated"), [(6, 0), (7, 4)], ids=["not seen yet", "seen"])
def test_nothing_is_updated_before_the_controller_has_seen_the_object(observed: int, updated: int) -> None:
    """Right after a new template its status still tells of the old one: that is no rollout that has ended."""
    manifest = {
        "metadata": {"name": "web", "namespace": "shop", "generation": 7},
        "spec": {"replicas": 4},
        "status": {"observedGeneration": observed, "replicas": 4, "updatedReplicas": 4, "availableReplicas": 4},
    }
    for found in (
        workload_from_manifest(manifest, "Deployment"),
        workload_from_struct(msgspec.convert(manifest, Deployment)),
    ):
        assert (found.replicas, found.updated, found.available) == (4, updated, 4)


def test_no_more_objects_are_named_beside_one_than_a_bound() -> None:
    many = [DependencyReference("ConfigMap", f"c{number:03}") for number in reversed(range(BESIDE_MAX + 1))]
    shown = status_with_other_objects(observed_status(TARGET, FOUND, None), many)
    assert shown is not None
    assert [one.name for one in shown.beside] == [f"c{number:03}" for number in range(BESIDE_MAX)]
    assert {(one.kind, one.namespace) for one in shown.beside} == {("ConfigMap", "shop")}


VANISHED = (
    # all listed, log read, has objects, is placed; and whether the orphan is gone for certain
    pytest.param(True, True, False, False, True, id="neither an object nor a placement"),
    pytest.param(False, True, False, False, False, id="not all kinds are listed"),
    pytest.param(True, False, False, False, False, id="the log is not proven to be read"),
    pytest.param(True, True, True, False, False, id="an object is there"),
    pytest.param(True, True, False, True, False, id="a placement lists it"),
)


@pytest.mark.parametrize(("all_listed", "log_read", "has_objects", "is_placed", "expected"), VANISHED)
def test_an_orphan_is_gone_for_certain(
    all_listed: bool, log_read: bool, has_objects: bool, is_placed: bool, expected: bool
) -> None:
    found = has_vanished(all_listed=all_listed, log_read=log_read, has_objects=has_objects, is_placed=is_placed)
    assert found == expected
