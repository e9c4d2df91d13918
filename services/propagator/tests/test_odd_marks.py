"""Whatever a cluster's users write onto an object ends no propagator, and can be said of it."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from propagator.cluster.mirror import ObjectMirror
from propagator.core.adoption_answers import adoption_answer
from propagator.core.desired import PartTarget
from propagator.core.kinds import KINDS
from propagator.core.live import dependency_from_manifest, workload_from_manifest
from propagator.core.status import AttemptOutcome, observed_status
from spillway.addresses import FOUND_WORKLOADS, WORKLOAD_STATUS
from spillway.clusters.api import DEPLOYMENTS
from spillway.events import FOUND, STATE_ORPHANED, AdoptionAsked
from spillway.model import Generation
from spillway.wire import decode_event, encode_event, event_type

ASKED = AdoptionAsked(Generation(1, 1), "", "", ("own-1",), "f1")
NINES = "9" * 20
VALUES = st.text() | st.from_regex(r"[0-9٠-٩+-]{0,40}[.]?[0-9]{0,40}", fullmatch=True)
COUNTS = st.integers(0, 2**31 - 1)


@given(st.sampled_from(sorted(KINDS)), VALUES, VALUES, COUNTS)
@example("Deployment", f"{NINES}.1", f"{NINES}.a", 1)
@example("StatefulSet", f"{'9' * 5000}.1", f"{'9' * 5000}.a", 1)
@example("Job", f"1.{'9' * 5000}", "", 2**31 - 1)
def test_what_an_object_bears_is_read_and_goes_onto_the_wire(
    kind: str, placement: str, declaration: str, count: int
) -> None:
    marks = {"spillway.io/placement": placement, "spillway.io/declaration": declaration}
    metadata = {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "annotations": marks}
    status = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "active", "ready", "succeeded"), count)
    manifest = {"kind": kind, "metadata": metadata, "spec": {KINDS[kind].replicas: count}, "status": status}
    mirror = ObjectMirror("own-1")
    target = mirror.upsert_workload(msgspec.convert(manifest, KINDS[kind].served.type))
    found = mirror.workloads[target][kind]
    assert found == workload_from_manifest(manifest, kind)
    said = observed_status(target, found, AttemptOutcome(found.version, STATE_ORPHANED, ""))
    assert said is not None
    assert decode_event(WORKLOAD_STATUS.name, event_type(said), encode_event(said)) == said
    answered = adoption_answer(ASKED, PartTarget("own-1", "shop", "web"), FOUND, found=manifest)
    assert decode_event(FOUND_WORKLOADS.name, event_type(answered), encode_event(answered)) == answered
    assert dependency_from_manifest(manifest).declaration[0] < 10**18


@pytest.mark.looptime
@pytest.mark.parametrize(
    "text", [f"{NINES}.1", f"{'9' * 5000}.1", f"1.{'9' * 30}"], ids=["20 digits", "5000 digits", "second"]
)
async def test_a_version_that_nobody_gave_ends_nothing_and_is_left_alone(fleet: Any, text: str) -> None:
    """One on an object that no placement lists, one on a workload of ours."""
    async with fleet:
        await fleet.declare_workload()
        await fleet.publish_placement(1, {"own-1": 2})
        await fleet.start()
        await asyncio.sleep(5)
        api = fleet.user_api("own-1")
        marks = {"metadata": {"annotations": {"spillway.io/placement": text}}}
        whole = {
            name: value for name, value in fleet.deployment("own-1").items() if name in ("apiVersion", "kind", "spec")
        }
        ours = {"name": "theirs", "namespace": "default", "labels": {"spillway.io/fleet": "f1"}, **marks["metadata"]}
        await api.create(DEPLOYMENTS, {**whole, "metadata": ours})
        seen = fleet.deployment("own-1")["metadata"]["resourceVersion"]
        await api.patch(DEPLOYMENTS, "default", "web", marks, resource_version=seen)
        await fleet.stop()
        await fleet.start("p2")
        await fleet.publish_placement(2, {"own-1": 3, "own-2": 1})
        await asyncio.sleep(600)
        assert fleet.deployment_replicas("own-2") == 1
        assert fleet.last_state_and_version("own-1", "theirs")[0] == "Orphaned"
        assert fleet.deployment("own-1")["metadata"]["annotations"]["spillway.io/placement"] == text
        assert "999999999999999999" in fleet.last_state_and_version("own-1")[2]
        assert "above 1.2" in fleet.last_state_and_version("own-1")[2]
