"""A pool pod shows its real pod, keeps what is its own, and stays as it ended."""

from typing import Any

import pytest

from spillway.lending_marks import GIVEN
from vk_bridge.core.pod.status import failed_status, has_had_real_pod, mirrored_status, waiting_status
from vk_bridge.core.pod.update import mutable_fields_text

SCHEDULED = {"type": "PodScheduled", "status": "True"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
RUNNING: dict[str, Any] = {
    "metadata": {},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "reason": "theirs"}, READY],
        "containerStatuses": [{"name": "main", "restartCount": 2, "ready": True, "image": "i"}],
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "hostIP": "192.168.0.1",
        "startTime": "2026-01-01T00:00:00Z",
        "qosClass": "Guaranteed",
    },
}

REFUSED: dict[str, Any] = {"metadata": {}, "status": {"phase": "Failed", "reason": "OutOfcpu"}}


def pool_pod_with_status(**status: Any) -> dict[str, Any]:
    shown = {"phase": "Pending", "conditions": [SCHEDULED], "qosClass": "Burstable", **status}
    return {"spec": {"containers": [{"name": "main", "image": "i"}]}, "status": shown}


def status_as_server_writes_it(status: dict[str, Any]) -> dict[str, Any]:
    """Times of conditions that nobody said become null."""
    times = {"lastProbeTime": None, "lastTransitionTime": None}
    return {**status, "conditions": [{**times, **entry} for entry in status["conditions"]]}


def test_what_is_shown_is_not_written_again_though_the_server_writes_it_otherwise() -> None:
    wanted = mirrored_status(pool_pod_with_status(), RUNNING, "10.0.0.9")
    assert wanted is not None
    shown = {**pool_pod_with_status(), "status": status_as_server_writes_it(wanted)}
    assert mirrored_status(shown, RUNNING, "10.0.0.9") is None
    waiting = waiting_status(pool_pod_with_status(), "CreateContainerConfigError", "none")
    assert waiting is not None
    shown = {**pool_pod_with_status(), "status": status_as_server_writes_it(waiting)}
    assert waiting_status(shown, "CreateContainerConfigError", "none") is None


def test_what_is_mirrored_and_what_is_the_pools_own() -> None:
    assert mirrored_status(pool_pod_with_status(), RUNNING, "10.0.0.9") == {
        "phase": "Running",
        "conditions": [SCHEDULED, READY, {"type": "spillway.io/Created", "status": "True"}],
        "containerStatuses": RUNNING["status"]["containerStatuses"],
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "hostIP": "10.0.0.9",
        "startTime": "2026-01-01T00:00:00Z",
        "qosClass": "Burstable",
    }


def test_a_pod_that_is_resized_says_that_it_is_not_and_no_more_once_it_asks_for_what_it_did() -> None:
    def pool_pod_requesting(cpu: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        return {**pool_pod_with_status(**(status or {})), "metadata": {}, "spec": {"containers": [container]}}

    theirs = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    real = {
        "metadata": {"annotations": {GIVEN: mutable_fields_text(pool_pod_requesting("1"), ())}},
        "status": {**RUNNING["status"], "conditions": [READY, theirs]},
    }
    told = mirrored_status(pool_pod_requesting("2"), real, "10.0.0.9")
    assert told is not None
    assert [(one["reason"], one["status"]) for one in told["conditions"] if one["type"] == "PodResizePending"] == [
        ("Infeasible", "True")
    ]
    assert mirrored_status(pool_pod_requesting("2", told), real, "10.0.0.9") is None
    again = mirrored_status(pool_pod_requesting("1", told), real, "10.0.0.9")
    assert again is not None
    assert [one for one in again["conditions"] if one["type"] == "PodResizePending"] == [theirs]


def test_what_is_mirrored_already_is_not_written_again() -> None:
    shown = mirrored_status(pool_pod_with_status(), RUNNING, "10.0.0.9")
    assert shown is not None
    assert mirrored_status(pool_pod_with_status(**shown), RUNNING, "10.0.0.9") is None
    assert has_had_real_pod({"status": shown})
    assert not has_had_real_pod(pool_pod_with_status())


def test_what_the_real_pod_no_longer_says_goes() -> None:
    shown = mirrored_status(pool_pod_with_status(), RUNNING, "10.0.0.9")
    assert shown is not None
    later = mirrored_status(pool_pod_with_status(**shown), REFUSED, "10.0.0.9")
    assert later is not None
    assert (later["phase"], later["reason"], "podIP" in later) == ("Failed", "OutOfcpu", False)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_stays_as_it_ended(phase: str) -> None:
    ended = pool_pod_with_status(phase=phase)
    assert mirrored_status(ended, RUNNING, "10.0.0.9") is None
    assert failed_status(ended, "Gone", "x") is None
    assert waiting_status(ended, "CreateContainerConfigError", "x") is None


def test_a_refused_pod_says_why() -> None:
    found = failed_status(pool_pod_with_status(conditions=[SCHEDULED, READY]), "NotLendable", "volume v: hostPath")
    assert found is not None
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "NotLendable", "volume v: hostPath")
    assert [entry["status"] for entry in found["conditions"]] == ["True", "False"]


def test_a_pod_that_waits_for_a_secret_says_so_as_a_kubelet_does() -> None:
    found = waiting_status(pool_pod_with_status(), "CreateContainerConfigError", 'secret "x" not found')
    assert found is not None
    assert found["phase"] == "Pending"
    assert found["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}
    }
    assert waiting_status(pool_pod_with_status(**found), "CreateContainerConfigError", 'secret "x" not found') is None
