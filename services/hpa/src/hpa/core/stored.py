"""What a decision leaves to the next one, as bytes of ScaleStateChanged.state, and back. Pure."""

from typing import Final

import msgspec
from msgspec import Struct

from hpa.core.heard.inputs import Backlog, BacklogKey, Inputs, Load, LoadKey, LoadName
from hpa.core.sizing.composing import NOTHING_REMEMBERED, Due, Remembered
from spillway.packed import NotPacked, pack, unpack


class Unreadable(ValueError):
    """A state that was not written by stored_bytes; the text says why."""


class Stored(Struct, frozen=True):
    """loads, backlogs: of topics that forget. changed_ms: when the size was last changed by us; 0: never.

    loads_from_ms, backlogs_from_ms, ahead_ms: as of Inputs.
    """

    remembered: Remembered = NOTHING_REMEMBERED
    due: Due | None = None
    changed_ms: int = 0
    loads: tuple[tuple[LoadKey, Load], ...] = ()
    backlogs: tuple[tuple[BacklogKey, Backlog], ...] = ()
    loads_from_ms: tuple[tuple[LoadName, int], ...] = ()
    backlogs_from_ms: tuple[tuple[BacklogKey, int], ...] = ()
    ahead_ms: tuple[tuple[str, int], ...] = ()

    def restore(self, inputs: Inputs) -> None:
        """What of the inputs only a state remembers."""
        inputs.loads, inputs.backlogs = dict(self.loads), dict(self.backlogs)
        inputs.loads_from_ms, inputs.backlogs_from_ms = dict(self.loads_from_ms), dict(self.backlogs_from_ms)
        inputs.correct({**dict.fromkeys(inputs.ahead_ms, 0), **dict(self.ahead_ms)})


NOTHING_STORED: Final = Stored()
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Stored)


def stored_of(remembered: Remembered, due: Due | None, changed_ms: int, inputs: Inputs) -> Stored:
    return Stored(
        remembered=remembered,
        due=due,
        changed_ms=changed_ms,
        loads=tuple(inputs.loads.items()),
        backlogs=tuple(inputs.backlogs.items()),
        loads_from_ms=tuple(inputs.loads_from_ms.items()),
        backlogs_from_ms=tuple(inputs.backlogs_from_ms.items()),
        ahead_ms=tuple(inputs.ahead_ms.items()),
    )


def stored_bytes(stored: Stored) -> bytes:
    return pack(_ENCODER.encode(stored))


def read_stored(data: bytes) -> Stored:
    """Raises Unreadable."""
    try:
        return _DECODER.decode(unpack(data)) if data else NOTHING_STORED
    except (NotPacked, msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"scale-state: {error}") from error
