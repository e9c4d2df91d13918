"""Writes a decision's division into its record, and computes it again from there to check that it is the same.

A division depends on its situation alone. The record has the situation, with every room that the division may ask for,
and the result, as JSON. A new computation from the record must give the same bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any, get_type_hints

import msgspec

from planner.core.division.situation import Division, DivisionBasis, Situation
from planner.core.division.tier_division import cluster_inputs_of, clusters_by_tier
from planner.core.division.words import limit_text, recorded_limit
from planner.core.feasibility.room import Room
from planner.core.manifests.policy import REPLICAS_MAX, FleetClusters
from planner.core.placement.choice import division_function
from spillway.compressed_text import NotPacked, pack_text, unpack_text
from spillway.events import DecisionRecorded

FLEETS_KEPT_MAX = 16
SINCE_DEFAULTED = frozenset(("missing", "await_missing", "waits_in"))
"""Fields of Situation and Division that older records lack. For such a record, the field has its default."""

_PLAIN = frozenset((bool, dict, int, str))
"""Types whose values are written as JSON without a change."""


class RoomEntry(msgspec.Struct, array_like=True, frozen=True):
    """A room in the form that decision records contain.

    limited_by: the text of its limit. code: its LimitCode; empty in records of older versions.
    """

    cluster: str
    node_groups: bool
    certain: int
    possible: int
    limited_by: str
    when_empty: bool
    code: str = ""


class NotReplayable(Exception):
    """The record has no division that can be computed again; the text says why."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    recorded, recomputed: the division as JSON.
    differences: texts for users, one for each field that differs.
    aside: texts for users about replicas whose decision differs from the division, and why that is right.
    """

    situation: Situation
    division: Division
    recorded: bytes
    recomputed: bytes
    differences: tuple[str, ...]
    aside: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return self.recorded == self.recomputed


def pack_division(basis: DivisionBasis) -> bytes:
    """Returns the packed situation, rooms and division for DecisionRecorded.division."""
    situation = {name: _json_ready_value(getattr(basis.situation, name)) for name in _situation_types()}
    situation["clusters"] = _clusters_json(FleetClusters(basis.situation.clusters))
    entries = dict.fromkeys(
        (name, tier.node_groups) for tier, names in clusters_by_tier(basis.situation) for name in names
    )
    rooms = [_room_entry(*place, basis.situation.room(*place)) for place in entries]
    division = msgspec.Raw(_division_json(basis.division))
    return pack_text(msgspec.json.encode({"situation": situation, "rooms": rooms, "division": division}))


@lru_cache(maxsize=FLEETS_KEPT_MAX)
def _clusters_json(clusters: FleetClusters) -> msgspec.Raw:
    """Returns the clusters as JSON, without endpoint and credential."""
    return msgspec.Raw(msgspec.json.encode([replace(cluster, credential="", endpoint="") for cluster in clusters]))


def read_division(record: DecisionRecorded) -> tuple[Situation, bytes]:
    """Returns the situation of a recorded division, and the division as JSON.

    Raises NotReplayable when there is none.
    """
    if not record.division:
        raise NotReplayable("no division was made, or the record is of a version that did not keep it")
    try:
        kept = msgspec.json.decode(unpack_text(record.division), type=dict[str, msgspec.Raw])
        rooms = {
            (entry.cluster, entry.node_groups): Room(
                entry.certain, entry.possible, recorded_limit(entry.limited_by, entry.code), entry.when_empty
            )
            for entry in msgspec.json.decode(kept["rooms"], type=tuple[RoomEntry, ...])
        }
        values = msgspec.json.decode(kept["situation"], type=dict[str, msgspec.Raw])
        absent = {name for name in SINCE_DEFAULTED if name not in values}
        types = ((name, kind) for name, kind in _situation_types().items() if name not in absent)
        found = {name: msgspec.json.decode(values[name], type=kind) for name, kind in types}
        msgspec.json.decode(kept["division"], type=dict[str, Any])
    except (NotPacked, msgspec.MsgspecError, ValueError, RecursionError, KeyError) as error:
        raise NotReplayable(f"what was kept cannot be read by this version: {error}") from error
    if not 0 <= found["replicas"] <= REPLICAS_MAX:  # Some strategies divide one replica after the other.
        raise NotReplayable(f"situation.replicas: {found['replicas']}: expected 0 to {REPLICAS_MAX}")

    def room_in_place(cluster: str, node_groups: bool) -> Room:
        return rooms[cluster, node_groups]

    return Situation(room=room_in_place, **found), bytes(kept["division"])


def replay_division(record: DecisionRecorded) -> ReplayResult:
    """Divides again from a record and compares the results. Raises NotReplayable when it cannot divide."""
    situation, recorded = read_division(record)
    try:
        division = division_function(situation)(situation)
        recomputed = _division_json(division)
    except KeyError as error:
        raise NotReplayable(f"the division asks for a room that was not recorded: {error}") from error
    except (ValueError, TypeError, ArithmeticError) as error:
        raise NotReplayable(f"what was recorded cannot be divided by this version: {error}") from error
    return ReplayResult(
        situation,
        division,
        recorded,
        recomputed,
        _difference_texts(recorded, recomputed),
        _deviation_texts(record, division),
    )


def _difference_texts(recorded: bytes, recomputed: bytes) -> tuple[str, ...]:
    before, after = msgspec.json.decode(recorded), msgspec.json.decode(recomputed)
    return tuple(
        f"{name}: recorded {_shortened_json(before.get(name))}, recomputed {_shortened_json(after.get(name))}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _deviation_texts(record: DecisionRecorded, division: Division) -> tuple[str, ...]:
    """Returns texts for users about clusters where the decision has other numbers of replicas than the division."""
    decided = {entry.cluster: entry.after for entry in record.inputs if entry.cluster}
    divided = {entry.cluster: entry.after for entry in division.inputs if entry.cluster}
    texts = [
        f"{cluster}: {decided[cluster]} were decided and {divided.get(cluster, 0)} divided"
        for cluster in decided
        if decided[cluster] != divided.get(cluster, 0)
    ]
    if record.unplaced != division.unplaced:
        texts.append(
            f"{division.unplaced - record.unplaced} replicas without another place stay where they were to leave"
        )
    return tuple(texts)


def _shortened_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"


def _division_json(division: Division) -> bytes:
    return msgspec.json.encode(
        {
            name: _json_ready_value(value)
            for name, value in _recorded_fields(division)
            if value or name not in SINCE_DEFAULTED
        }
    )


def _room_entry(cluster: str, node_groups: bool, room: Room) -> RoomEntry:
    certain, possible, limited_by, when_empty = room
    return RoomEntry(cluster, node_groups, certain, possible, limit_text(limited_by), when_empty, limited_by.code.value)


def _recorded_fields(division: Division) -> Iterator[tuple[str, Any]]:
    for entry in fields(Division):
        if entry.name == "inputs":
            yield entry.name, cluster_inputs_of(division.inputs)
        elif entry.name != "basis":
            yield entry.name, getattr(division, entry.name)


def _json_ready_value(value: Any) -> Any:
    """Returns the value in a form that JSON always writes in the same order."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


@cache
def _situation_types() -> Mapping[str, Any]:
    hints = get_type_hints(Situation)
    return {entry.name: hints[entry.name] for entry in fields(Situation) if entry.name != "room"}
