"""Fuzzes the states of services with readable records, taken in as the service does. No record may end a service."""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Final

from descheduler.core.state import DeschedulerState
from descheduler.log import LendingIntake as DeschedulerIntake
from descheduler.settings import DeschedulerSettings
from hpa.core.scaled import BadPolicy
from hpa.core.state import HpaState
from hpa.core.stored import UnreadableState
from hpa.log import ScalingIntake as HpaIntake
from hpa.settings import HpaSettings
from planner.api.exports import export_state
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.templates import BadDeclaration
from planner.log.intake import PlannerIntake, changed_keys
from propagator.core.desired import DesiredState
from propagator.core.desired import PartTarget as Place
from propagator.service import Propagator
from propagator.settings import PropagatorSettings
from snapshot.core.log_book import address_of_key
from snapshot.service import Snapshot
from snapshot.settings import SnapshotSettings
from spillway.addresses import (
    CAPACITY,
    CAPACITY_CHANGES,
    CLUSTERS,
    EVENTS_BY_TOPIC,
    PENDING,
    PODS,
    SCALE_POLICIES,
    TOPICS,
    WORKLOADS,
    address_of_event,
)
from spillway.addresses import FLEET as FLEET_TOPIC
from spillway.bus import Record
from spillway.clusters.api import ClusterUnreachable
from spillway.columns import columns_of
from spillway.dead_letters import LetterReading, StoredRecord, dead_letter, outgoing_record
from spillway.events import CapacityChanged, CapacityReported, ClusterJoined, Event
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation, NodeRow
from spillway.wire import UnreadableMessage, event_type, pack_columns
from spillway_fuzz.mutation import mutated_bytes
from spillway_fuzz.records import FLEET
from spillway_fuzz.target import Input, Target
from spillway_fuzz.values import CLUSTERS as NAMES
from spillway_fuzz.values import random_encodable_event
from vk_bridge.core.log_state import LendingLogState

Stream = tuple[tuple[str, str, str, bytes | None], ...]
"""A sequence of records: (topic, key, ce_type, value)."""
NOW: Final = 1_000.0
NOW_MS: Final = 1_795_737_600_000
RECORDS_MAX: Final = 12


def targets() -> list[Target]:
    return [
        Target(f"records to {service}", partial(_random_records, topics), run, share=4)
        for service, topics, run in SERVICES
    ]


def _topics_read_by(service: str) -> tuple[str, ...]:
    return tuple(topic.name for topic in TOPICS if service in topic.readers and topic is not FLEET_TOPIC)


def _random_records(topics: tuple[str, ...], chance: Random) -> Input:
    """Makes readable records. One in ten is a tombstone of any key."""
    return tuple(_random_record(chance.choice(topics), chance) for _ in range(chance.randint(1, RECORDS_MAX)))


def _random_record(topic: str, chance: Random) -> tuple[str, str, str, bytes | None]:
    event, value, address = random_encodable_event(chance.choice(EVENTS_BY_TOPIC[topic]), chance)
    if chance.random() < 0.1:
        key = address.key.encode()
        return topic, (mutated_bytes(key, chance) if chance.random() < 0.5 else key).decode(errors="replace"), "", None
    return topic, address.key, event_type(event), value


def _readable_records(given: Stream) -> list[Record]:
    """Returns the records as a feed does, without unreadable ones."""
    reading = LetterReading(FLEET, "fuzz", 10_000)
    stored = [
        StoredRecord(topic, 0, number + 100, key.encode(errors="replace"), value, _record_headers(kind))
        for number, (topic, key, kind, value) in enumerate(given)
    ]
    return list(reading.read_records(stored, 0.0))


def _record_headers(kind: str) -> tuple[tuple[str, bytes], ...]:
    return (("fleet", FLEET.encode()), ("ce_type", kind.encode()))


# ── Records before the input ────────────────────────────────────────────────────────────────────────────────────────

_ROWS: Final = [
    NodeRow(name, {"cpu": 4_000, "memory": 2**34, "pods": 110}, {"cpu": 500, "pods": 1}, labels=(("zone", "a"),))
    for name in ("n1", "n2")
]
_COLUMNS: Final = pack_columns(columns_of(_ROWS))


def events_of_known_clusters() -> list[Event]:
    """Returns the events of two clusters with nodes, at the present time."""
    events: list[Event] = []
    for name in NAMES[:2]:
        events += [
            ClusterJoined(name, name, "", "own", "", "", (), ()),
            CapacityReported(name, 1, 0, 1, 0, 0, _COLUMNS, ()),
            CapacityChanged(name, 1, 0, 1, 5, b"", (), (), (), ""),
        ]
    return events


def _records_of_events(events: Iterable[Event]) -> list[Record]:
    return [
        Record(address_of_event(event).topic.name, 0, number, address_of_event(event).key, event)
        for number, event in enumerate(events)
    ]


BEFORE: Final = _records_of_events(events_of_known_clusters())


def _apply_fit_records(intake: Any, records: Iterable[Record], live: bool, *unfit: type[Exception]) -> int:
    """Takes in the records. Returns how many were fit."""
    fit = 0
    for record in records:
        try:
            intake.apply_record(record, live)
            fit += 1
        except unfit as error:
            outgoing_record(dead_letter((record.topic, 0, 0), "fuzz", str(error), b""))
    return fit


# ── The services ────────────────────────────────────────────────────────────────────────────────────────────────────


def _feed_planner(given: Stream) -> bool:
    """Takes records into a planner's state, then exports the state, which reads all of it."""
    intake = PlannerIntake(PlannerState(PlannerRules()), lambda: NOW, lambda records, offsets: None)
    intake.caught_up_at = NOW
    _apply_fit_records(intake, BEFORE, True)
    records = _readable_records(given)
    fit = _apply_fit_records(intake, records, True, BadDeclaration, UnreadableMessage)
    state = intake.state
    changed_keys(records)
    state.ages_ms(NOW)
    for workload in list(state.workloads.values()):
        state.rooms_of_fleet(workload.replica_shape, NOW, workload.workload_key)
    for _ in export_state(state, NOW, NOW_MS, FLEET):
        pass
    return fit > 0


def _feed_hpa(given: Stream) -> bool:
    """Applies half of the records as a standby, the others with the turn. Checks that the decisions can be written."""
    intake = HpaIntake(lambda partition_of: HpaState(HpaSettings().rules(), partition_of))
    records, numbers = _readable_records(given), iter(range(1, 1_000_000))
    first = len(records) // 2
    intake.start_offsets({(WORKLOADS.name, 0): 0})
    fit = _apply_fit_records(intake, records[:first], False, BadPolicy, UnreadableState)
    state = intake.state
    events = state.take_turn(lambda: Generation(9, next(numbers)), NOW_MS)
    heard: list[Any] = []

    async def collect_heard_records(more: Any, _: Any) -> None:
        heard.extend(more)

    intake.hear = collect_heard_records
    fit += _apply_fit_records(intake, records[first:], True)
    for one in intake._heard:
        events += state.decide_on_record(one, NOW_MS)
    events += [*state.make_due_decisions(NOW_MS + 60_000), *state.take_unwritten_states()]
    for event in events:
        outgoing_record(event)
    return fit > 0


def _feed_descheduler(given: Stream) -> bool:
    intake = DeschedulerIntake(DeschedulerState(DeschedulerSettings().rules()))
    _apply_fit_records(intake, BEFORE, True)
    return _apply_fit_records(intake, _readable_records(given), True, UnreadableMessage) > 0


def _raise_cluster_unreachable(joined: ClusterJoined) -> Any:
    raise ClusterUnreachable(joined.cluster, "connection", "there are none here")


def _new_local_bus() -> LocalBus:
    return LocalBus(LocalBroker(), FLEET, "fuzz")


def _feed_propagator(given: Stream) -> bool:
    service = Propagator(_new_local_bus(), _raise_cluster_unreachable, PropagatorSettings(), "propagator-1")
    return _apply_all_records(service._apply_record, given) > 0


def _query_wanted_states(given: Stream) -> bool:
    """Reads all records, then asks for the wanted state of each place."""
    desired, records = DesiredState(), _readable_records(given)
    for record in records:
        desired.apply_record(record.topic, record.key, record.event)
    for cluster in NAMES:
        list(desired.hindered_templates(cluster))
        for place in (*desired.targets_in_cluster(cluster), Place(cluster, "shop", "web")):
            desired.wanted_state(place)
            desired.wanted_template(place)
    desired.targets_of_obsolete_statuses()
    desired.declared_template_digests()
    return bool(records)


def _feed_snapshot(given: Stream) -> bool:
    service = Snapshot(_new_local_bus(), _raise_cluster_unreachable, SnapshotSettings(), "snapshot-1")
    apply = {
        CLUSTERS.name: service._apply_cluster,
        SCALE_POLICIES.name: service._apply_policy,
        CAPACITY_CHANGES.name: service._note_change_epoch,
        **dict.fromkeys((CAPACITY.name, PENDING.name, PODS.name), service._apply_own_record),
    }
    fit = _apply_all_records(lambda record: apply[record.topic](record), given)
    for cluster in list(service._book._seen):
        for key in [*service._book.foreign_keys(cluster, 2**62, {}), *service._book.keys_left_over(cluster)]:
            address_of_key(cluster, key)
    return fit > 0


def _feed_vk_bridge(given: Stream) -> bool:
    state, records = LendingLogState(), _readable_records(given)
    for record in records:
        state.apply_tombstone(record.topic, record.key) if record.event is None else state.apply_event(record.event)
    for cluster in (*NAMES, *state.loans):
        state.has_work_in_cluster(cluster)
        state.lending_in_force(cluster)
        state.needed_shapes(cluster)
        list(state.left_virtual_nodes(cluster))
    return bool(records)


def _apply_all_records(apply: Callable[[Record], None], given: Stream) -> int:
    records = _readable_records(given)
    for record in records:
        apply(record)
    return len(records)


SERVICES: Final = (
    ("planner", _topics_read_by("planner"), _feed_planner),
    ("hpa", _topics_read_by("hpa"), _feed_hpa),
    ("descheduler", _topics_read_by("descheduler"), _feed_descheduler),
    ("propagator", _topics_read_by("propagator"), _feed_propagator),
    ("propagator, what it wants", _topics_read_by("propagator"), _query_wanted_states),
    ("snapshot", _topics_read_by("snapshot"), _feed_snapshot),
    ("vk-bridge", _topics_read_by("vk-bridge"), _feed_vk_bridge),
)
