"""Converts the state that a decision leaves to the bytes of ScaleStateChanged.state, and back. Pure."""

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.inputs import Backlog, BacklogKey, LoadKey, LoadName, MetricSeries, WorkloadInputs
from hpa.core.kubernetes.deciding import SCALING_ACTIVE, AutoscalerCondition, with_conditions
from hpa.core.kubernetes.evaluating import NOTHING_DECIDED
from hpa.core.own.queue_state import NOTHING_SEEN
from hpa.core.sizing.composing import NOTHING_REMEMBERED, NextEvaluation, SizingState
from spillway.compressed_text import UNPACKED_BYTES_MAX, NotPacked, pack_text, unpack_text

STATE_BYTES_MAX: Final = 3 * 512 * 1024
"""The most bytes of a state, so that it fits into a record of 2 MiB. The bounds of one workload are far below."""
STATE_TOO_LARGE: Final = "StateTooLarge"


class UnreadableState(ValueError):
    """Raised for bytes that are not a stored state. The text is the reason."""


class StoredState(Struct, frozen=True):
    """The state of one workload.

    loads, backlogs: the inputs of topics with retention, whose records Kafka deletes after a time.
    changed_ms: the time of our last change of the size; 0: never.
    loads_from_ms, backlogs_from_ms, ahead_ms: as in WorkloadInputs.
    """

    remembered: SizingState = NOTHING_REMEMBERED
    due: NextEvaluation | None = None
    changed_ms: int = 0
    loads: tuple[tuple[LoadKey, MetricSeries], ...] = ()
    backlogs: tuple[tuple[BacklogKey, Backlog], ...] = ()
    loads_from_ms: tuple[tuple[LoadName, int], ...] = ()
    backlogs_from_ms: tuple[tuple[BacklogKey, int], ...] = ()
    ahead_ms: tuple[tuple[str, int], ...] = ()

    def restore_inputs(self, inputs: WorkloadInputs) -> None:
        """Restores the inputs that only the state keeps: the values and backlogs of topics with retention."""
        inputs.loads, inputs.backlogs = dict(self.loads), dict(self.backlogs)
        inputs.loads_from_ms, inputs.backlogs_from_ms = dict(self.loads_from_ms), dict(self.backlogs_from_ms)
        inputs.correct_clocks({**dict.fromkeys(inputs.ahead_ms, 0), **dict(self.ahead_ms)})


NOTHING_STORED: Final = StoredState()
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(StoredState)


def stored_state_of(
    remembered: SizingState, due: NextEvaluation | None, changed_ms: int, inputs: WorkloadInputs
) -> StoredState:
    return StoredState(
        remembered=remembered,
        due=due,
        changed_ms=changed_ms,
        loads=tuple(inputs.loads.items()),
        backlogs=tuple(inputs.backlogs.items()),
        loads_from_ms=tuple(inputs.loads_from_ms.items()),
        backlogs_from_ms=tuple(inputs.backlogs_from_ms.items()),
        ahead_ms=tuple(inputs.ahead_ms.items()),
    )


def stored_state_bytes(stored: StoredState) -> bytes:
    return pack_text(_ENCODER.encode(stored))


def fit_stored_state(stored: StoredState) -> tuple[StoredState, bytes]:
    """Returns the state to write, and its bytes.

    If a state is too large for a record, all reported values are left out, and their metrics are unknown. So no report
    can prevent this transaction or later ones from being written.
    """
    state_bytes = _bytes_that_fit(stored)
    if state_bytes is None:
        stored = _without_reported_values(stored)
        state_bytes = _bytes_that_fit(stored)
    if state_bytes is None:  # Its history of sizes alone is too large.
        conditions = tuple(one for one in stored.remembered.scaling.conditions if one.reason == STATE_TOO_LARGE)
        remembered = replace(stored.remembered, scaling=replace(NOTHING_DECIDED, conditions=conditions))
        stored = replace(stored, remembered=remembered, loads_from_ms=(), backlogs_from_ms=())
        state_bytes = stored_state_bytes(stored)
    return stored, state_bytes


def _bytes_that_fit(stored: StoredState) -> bytes | None:
    text = _ENCODER.encode(stored)
    state_bytes = pack_text(text) if len(text) <= UNPACKED_BYTES_MAX else None
    return state_bytes if state_bytes is not None and len(state_bytes) <= STATE_BYTES_MAX else None


def _without_reported_values(stored: StoredState) -> StoredState:
    message = (
        "what was reported of it is too large for the log: it is forgotten, and unknown until it is reported again"
    )
    condition = AutoscalerCondition(SCALING_ACTIVE, False, STATE_TOO_LARGE, message)
    scaling = stored.remembered.scaling
    scaling = replace(scaling, conditions=with_conditions(scaling.conditions, condition))
    remembered = replace(stored.remembered, scaling=scaling, queue=NOTHING_SEEN)
    return replace(stored, remembered=remembered, loads=(), backlogs=())


def read_stored_state(state_bytes: bytes) -> StoredState:
    """Returns the state of these bytes. Raises UnreadableState."""
    try:
        return _DECODER.decode(unpack_text(state_bytes)) if state_bytes else NOTHING_STORED
    except (NotPacked, msgspec.DecodeError, RecursionError) as error:
        raise UnreadableState(f"scale-state: {error}") from error
