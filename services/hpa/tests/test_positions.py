"""How far the inputs were read is written also where nothing is decided, so that a start reads little again."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from hpa.core import unseen
from hpa.core.heard.heard_record import HeardRecord
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.addresses import LOAD, SCALE_POLICIES, SCALE_STATE
from spillway.events_scaling import ScalePolicyDeclared, ScaleStateChanged
from spillway.model import Generation

from .world import KEY, World, external_metric, hpa_manifest, load_observed, ms_after_start, world_under_policy

PLACE = (LOAD.name, 0)
FEW = HpaRules(positions_behind_max=10)


def report_other_workload(made: World, count: int, from_second: int = 100) -> None:
    """Reports of a workload without a policy, in the same partition."""
    for number in range(count):
        made.publish_input(replace(load_observed("queue", number, ms_after_start(from_second + number)), name="other"))


def written_states(made: World) -> list[ScaleStateChanged]:
    return [one.event for one in made.log if isinstance(one.event, ScaleStateChanged)]


def quiet_world(rules: HpaRules = FEW) -> World:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1, rules=rules)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    made.advance_to(ms_after_start(1_000))  # All that was due of it is done; its value is too old, and stays so.
    return made


def test_a_quiet_policy_stays_no_further_behind_than_its_bound() -> None:
    made = quiet_world()
    before, sizes = len(written_states(made)), list(made.decided)
    report_other_workload(made, 100, from_second=1_001)
    ends = sum(1 for one in made.log if one.topic == LOAD.name)
    assert ends - made.state.retained_start_offsets()[PLACE] <= FEW.positions_behind_max
    assert len(written_states(made)) - before <= 100 / FEW.positions_behind_max
    assert {one.name for one in written_states(made)} == {KEY[1]}
    assert made.decided == sizes
    made.restart()
    assert ends - made.state.retained_start_offsets()[PLACE] <= FEW.positions_behind_max


def test_where_nothing_is_scaled_nothing_is_written() -> None:
    made = quiet_world()
    made.state.forget_policy(KEY)
    before = len(written_states(made))
    report_other_workload(made, 100, from_second=1_001)
    assert len(written_states(made)) == before
    assert made.state.retained_start_offsets() == {}


def test_a_position_that_is_told_does_not_pass_what_waits_to_be_decided_on() -> None:
    """Of another workload of the partition, left from before the turn."""
    made = quiet_world()
    waiting = made._append_record(load_observed("queue", 90, ms_after_start(1_000)))
    for number in range(50):
        made._append_record(replace(load_observed("queue", number, ms_after_start(1_001)), name=f"other-{number}"))
    taken = HpaState(FEW, lambda _: 0)
    for heard in made.log:
        taken.follow_record(heard)
    taken.apply_early_records()
    assert taken.take_turn(made._next_generation, ms_after_start(1_001), 0) == []
    assert taken.take_unwritten_states() == []
    taken.make_due_decisions(ms_after_start(1_001))
    assert [one.positions for one in taken.take_unwritten_states() if isinstance(one, ScaleStateChanged)]
    assert taken.retained_start_offsets()[PLACE] > waiting.offset


@pytest.mark.parametrize("restarts", [False, True])
def test_no_decision_depends_on_when_positions_are_written(restarts: bool) -> None:
    manifest = hpa_manifest([external_metric("queue", "10")])
    often = world_under_policy(manifest, replicas=1, rules=HpaRules(positions_behind_max=1))
    never = world_under_policy(manifest, replicas=1)
    for number in range(60):
        for made in (often, never):
            made.publish_input(load_observed("queue", 13 * (number % 9), ms_after_start(20 * number + 10)))
            made.publish_input(replace(load_observed("queue", number, ms_after_start(20 * number + 11)), name="other"))
            if restarts:
                made.restart()
    assert [(one.at_ms, one.replicas) for one in often.decided] == [(one.at_ms, one.replicas) for one in never.decided]
    assert len(often.decided) > 5


def test_a_standby_keeps_nothing_of_what_a_state_of_the_partition_has_seen() -> None:
    """Reports that are older than the known one change nothing, so no state of their own workload ever follows them."""
    made = quiet_world()
    (policy,) = [one for one in made.log if isinstance(one.event, ScalePolicyDeclared)]
    assert isinstance(policy.event, ScalePolicyDeclared)
    standby = HpaState(FEW, lambda _: 0)
    for heard in (*made.log, policy_record_of("busy", policy.event)):
        standby.follow_record(heard)
    standby.apply_early_records()
    offset = standby.positions.reached[PLACE]
    with patch.object(unseen, "UNSEEN_LOOK", 20):
        for number in range(500):
            standby.follow_record(
                HeardRecord(
                    LOAD.name, 0, offset + number, "/".join(KEY), load_observed("queue", number, ms_after_start(9))
                )
            )
            if number % 10 == 9:
                seen = ((f"{LOAD.name}/0", offset + number),)
                said = replace(written_states(made)[-1], name="busy", positions=seen, generation=Generation(9, number))
                standby.follow_record(HeardRecord(SCALE_STATE.name, 0, number, "shop/busy", said))
    assert len(standby.scaled[KEY].unseen) <= 40


def policy_record_of(name: str, event: ScalePolicyDeclared) -> HeardRecord:
    return HeardRecord(SCALE_POLICIES.name, 0, 99, f"{KEY[0]}/{name}", replace(event, name=name))
