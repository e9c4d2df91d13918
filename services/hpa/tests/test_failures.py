"""An error that nobody foresaw stays with the workload that shows it: said, tried again, the same after a restart."""

import asyncio
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.requests.answers import explain_workload
from hpa.core.scaled import BadPolicy, FailedDecision, IsOver, ScaledWorkload
from hpa.core.sizing.composing import SizingCase
from hpa.core.state import HpaState
from hpa.service import Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.addresses import LOAD, SCALE_POLICIES, Tombstone
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, PolicyReply
from spillway.bus import Traces
from spillway.dead_letters import RECORD_BYTES_MAX
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.local_bus import LocalBroker, LocalBus
from spillway.running.request_queue import Written
from spillway.running.standby import WriterTurn

from .world import (
    KEY,
    World,
    condition_of_policy,
    decided_sizes,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scale_policy_manifest,
    workload_declared,
    world_under_policy,
)

OTHER = (KEY[0], "other")


class Defective(HpaState):
    """Cannot compute with the rules of one workload while its queue is 13, as a defect of ours might have it."""

    def sizing_case(self, scaled: ScaledWorkload, at_ms: int) -> SizingCase:
        found = super().sizing_case(scaled, at_ms)
        if scaled.key != KEY or all(one.value_milli != 13_000 for one in found.inputs.loads.values()):
            return found
        settings = msgspec.structs.replace(self.rules.settings, tolerance="13")
        rules = msgspec.structs.replace(self.rules, settings=settings)
        return msgspec.structs.replace(found, moment=msgspec.structs.replace(found.moment, rules=rules))


def _world_with_two_workloads(made_of: type[HpaState] = Defective) -> World:
    """Two workloads with the same policy, of which one will fail."""
    made = world_under_policy(
        hpa_manifest([external_metric("queue", "10")]), replicas=1, made_of=made_of, follows=False
    )
    made._write_events(
        made.state.decide_on_record(made._append_record(replace(workload_declared(1), name=OTHER[1])), made.now_ms)
    )
    (policy,) = [one.event for one in made.log if one.topic == SCALE_POLICIES.name]
    assert isinstance(policy, ScalePolicyDeclared)
    other = replace(policy, name=OTHER[1], policy="other", generation=made._next_generation())
    made._write_events(made.state.put_policy_in_force(other))
    return made


def _decided_replicas(made: World, name: str) -> list[int]:
    return [one.event.replicas for one in made.log if isinstance(one.event, ScaleDecided) and one.event.name == name]


def test_a_decision_that_an_error_stops_stops_no_other() -> None:
    made = _world_with_two_workloads()
    made.publish_input(load_observed("queue", 30, ms_after_start(5)))
    made.publish_input(load_observed("queue", 13, ms_after_start(10)))
    made.publish_input(replace(load_observed("queue", 40, ms_after_start(11)), name=OTHER[1]))
    made.publish_input(load_observed("queue", 13, ms_after_start(12)))
    assert (made.current_replicas, _decided_replicas(made, OTHER[1])) == (3, [4])
    told = explain_workload(made.state, made.state.scaled[KEY])
    (active,) = [one for one in told.conditions if one.type == "ScalingActive"]
    assert (active.status, active.reason) == ("False", "EvaluationFailed")
    assert active.message.startswith("an error in hpa itself: TypeError: ")
    assert told.due_why == "the decision that failed is tried again"
    assert [(one.key, one.again) for one in made.state.failed] == [(KEY, False), (KEY, True)]
    assert "TypeError" in made.state.failed[0].trace


def test_once_it_can_be_decided_it_is_and_the_error_is_said_no_more() -> None:
    for manifest in (
        hpa_manifest([external_metric("queue", "10")]),
        scale_policy_manifest(metrics=[external_metric("queue", "10")]),
    ):
        made = world_under_policy(manifest, replicas=1, made_of=Defective)
        made.publish_input(load_observed("queue", 13, ms_after_start(10)))
        made.advance_to(ms_after_start(100))
        assert (made.current_replicas, condition_of_policy(made, "ScalingActive")[1]) == (1, "EvaluationFailed")
        made.publish_input(load_observed("queue", 30, ms_after_start(110)))
        assert (made.current_replicas, condition_of_policy(made, "ScalingActive")[1]) == (3, "ValidMetricFound")


def test_a_failure_is_the_same_after_a_restart() -> None:
    made, killed = _world_with_two_workloads(), _world_with_two_workloads()
    for second, value in enumerate((30, 13, 13, 60, 13, 5)):
        for one in (made, killed):
            one.publish_input(load_observed("queue", value, ms_after_start(20 * second + 5)))
        killed.restart()
    assert decided_sizes(killed) == decided_sizes(made)
    assert [replicas for _, replicas in decided_sizes(made)] == [3, 6]
    said = [explain_workload(one.state, one.state.scaled[KEY]) for one in (made, killed)]
    assert said[0].conditions == said[1].conditions
    assert said[0].due_ms == said[1].due_ms


def test_a_record_that_an_error_stops_has_no_effect_and_stops_no_other() -> None:
    """Now, and where it is read again after a restart."""
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    broken: Any = {"value_milli": "13"}
    made.publish_input(load_observed("queue", 30, ms_after_start(5)))
    for second in (10, 11):
        made.publish_input(replace(load_observed("queue", 13, ms_after_start(second)), **broken))
    assert (made.current_replicas, made.state.dropped) == (3, {"error": 2})
    (failed,) = made.state.failed
    assert (failed.key, failed.topic, "TypeError" in failed.trace) == (KEY, LOAD.name, True)
    made.restart()
    made.publish_input(load_observed("queue", 60, ms_after_start(20)))
    assert made.current_replicas == 6


def test_a_policy_that_an_error_stops_is_refused_as_one_that_cannot_be_read() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1, follows=False)
    policy = next(one for one in made.log if one.topic == SCALE_POLICIES.name)
    assert isinstance(policy.event, ScalePolicyDeclared)
    broken: Any = {"manifest": None, "generation": made._next_generation()}
    with pytest.raises(BadPolicy, match="an error in hpa itself: AttributeError"):
        made.state.follow_record(msgspec.structs.replace(policy, event=replace(policy.event, **broken)))
    assert list(made.state.refused) == [KEY]
    assert [(one.key, one.topic) for one in made.state.failed] == [(KEY, SCALE_POLICIES.name)]


async def test_what_failed_is_counted_each_time_and_logged_once() -> None:
    made = Hpa(
        LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"),
        HpaSettings(),
        "hpa-1",
        HpaClocks(lambda: 0, lambda: 0.0),
    )
    made.state.failed += [FailedDecision(KEY, "the trace", again=False), FailedDecision(KEY, "the trace", again=True)]
    made.state.failed.append(FailedDecision(KEY, "its trace", again=False, topic=LOAD.name))
    before = REGISTRY.get_sample_value("spillway_scale_failed_total") or 0
    with capture_logs() as logged:
        made.note_written_events([])
        made.note_written_events([])
    assert REGISTRY.get_sample_value("spillway_scale_failed_total") == before + 2
    assert [(one["log_level"], one["workload"], one["trace"], one.get("topic", "")) for one in logged] == [
        ("error", "shop/web", "the trace", ""),
        ("error", "shop/web", "its trace", LOAD.name),
    ]


def test_a_decision_and_the_state_behind_it_are_written_together() -> None:
    """Else a crash between them decides the same again, or forgets that it did."""
    world = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made = Hpa(
        LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"),
        HpaSettings(),
        "hpa-1",
        HpaClocks(lambda: ms_after_start(10), lambda: 0.0),
    )
    made._state, made._has_begun = world.state, True
    made._heard.add_records([world._append_record(load_observed("queue", 40, ms_after_start(10)))])
    written = made.decide_step(WriterTurn(NoWriter())).events
    assert [type(event) for event in written] == [ScaleDecided, ScaleStateChanged]


def test_a_decision_that_no_record_can_hold_costs_its_workload_alone() -> None:
    class Talkative(HpaState):
        """Gives a reason that is larger than a record for one workload, as a defect of ours might do."""

        def decide_on_record_in_time(
            self, heard: HeardRecord, now_ms: int, is_over: IsOver
        ) -> tuple[list[Event], bool]:
            events, is_heard = super().decide_on_record_in_time(heard, now_ms, is_over)
            long = "r" * RECORD_BYTES_MAX
            return [
                replace(event, reason=long) if isinstance(event, ScaleDecided) and event.name == KEY[1] else event
                for event in events
            ], is_heard

    world = _world_with_two_workloads(Talkative)
    made = Hpa(
        LocalBus(LocalBroker(), "f", "hpa-1"),
        HpaSettings(),
        "hpa-1",
        HpaClocks(lambda: ms_after_start(10), lambda: 0.0),
    )
    made._state, made._has_begun = world.state, True
    for name in (KEY[1], OTHER[1]):
        made._heard.add_records(
            [world._append_record(replace(load_observed("queue", 40, ms_after_start(10)), name=name))]
        )
    written = made.decide_step(WriterTurn(NoWriter())).events
    assert [event.name for event in written if isinstance(event, ScaleDecided)] == [OTHER[1]]
    assert [(one.key, one.topic) for one in world.state.failed] == [(KEY, "")]
    assert (world.state.current_replicas(KEY), world.state.current_replicas(OTHER)) == (1, 4), (
        "it keeps the size that was declared"
    )


class Broken(HpaState):
    """Cannot declare a policy of one workload, as a defect of ours might have it: defect says how."""

    defect = ""

    def put_policy_in_force(self, event: ScalePolicyDeclared) -> list[Event]:
        events = super().put_policy_in_force(event)
        if event.name != KEY[1] or not self.defect:
            return events
        if self.defect == "an error":
            raise ZeroDivisionError("half of it is in the state")
        broken: dict[str, Any] = {"reason": "r" * RECORD_BYTES_MAX} if self.defect == "too large" else {"at_ms": 2**70}
        return [replace(one, **broken) if isinstance(one, ScaleDecided) else one for one in events]


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        pytest.param("too large", ("FAILED_PRECONDITION", "ScaleDecided shop/web: 2097"), id="too large for a record"),
        pytest.param("no number", ("INTERNAL", "ScaleDecided shop/web"), id="a number that no record has"),
        pytest.param("an error", ("INTERNAL", "ZeroDivisionError: half of it is in the state"), id="an error"),
    ],
)
async def test_a_request_that_cannot_be_decided_or_written_is_refused_alone(
    defect: str, words: tuple[str, str]
) -> None:
    world = _world_with_two_workloads(Broken)
    world.state.defect = defect  # type: ignore[attr-defined]
    made = Hpa(
        LocalBus(LocalBroker(), "f", "hpa-1"),
        HpaSettings(group_seconds=inf, batch_seconds=inf),
        "hpa-1",
        HpaClocks(lambda: ms_after_start(10), lambda: 0.0),
    )
    turn = WriterTurn(LaterWriter())
    made._state, made._has_begun, made.standby._turn = world.state, True, turn
    before = deepcopy((world.state.scaled[KEY], world.state.inputs[KEY], world.state.decided.get(KEY)))
    asked = [asyncio.create_task(made.declare_policy(_request_with_minimum(3, *names))) for names in (KEY, OTHER)]
    for _ in range(20):  # Until both wait to be decided.
        await asyncio.sleep(0)
    asked.append(asyncio.create_task(made.delete_policy(DeletePolicyRequest(*OTHER))))
    await asyncio.sleep(0)
    decided = made.decide_step(turn)
    decided.send_answers()
    bad, good, deleted = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(bad, RequestError)
    assert (bad.code, words[1] in str(bad)) == (words[0], True)
    assert [one.replicas for one in (good, deleted) if isinstance(one, PolicyReply)] == [3, 3]
    assert (world.state.scaled[KEY], world.state.inputs[KEY], world.state.decided.get(KEY)) == before
    assert {event.name for event in decided.events if not isinstance(event, Tombstone)} == {OTHER[1]}
    assert list(world.state.scaled) == [KEY]


def _request_with_minimum(least: int, namespace: str, name: str) -> DeclarePolicyRequest:
    manifest = hpa_manifest([external_metric("queue", "10")], least=least)
    manifest["metadata"]["name"] = "web-hpa" if name == KEY[1] else name
    manifest["spec"]["scaleTargetRef"]["name"] = name
    return DeclarePolicyRequest(json.dumps(manifest))


class NoWriter:
    """What a step may know of a writer, which it does not use."""

    turn_epoch = 1

    async def write_events(self, events: Sequence[Written], traces: Traces | None = None) -> None:
        raise AssertionError("a step writes nothing by itself")


class LaterWriter(NoWriter):
    """Of a turn after the one in which the world's policies were declared."""

    turn_epoch = 9
