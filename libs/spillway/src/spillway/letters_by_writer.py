"""Chooses which unreadable records of open topics become dead letters: the first of each writer and kind.

A publisher's mistake is not the reader's fault, so it never ends the reader. Anybody may write to an open topic, so the
number of kept bad records is bounded. It is bounded by writer, so that one writer does not hide the others.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from spillway.bus import Headers

NAME_CHARACTERS_MAX: Final = 100
"""The most characters of a source or a key in the name of a writer."""
KEY_BYTES_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 4096
"""The most bytes of an unreadable record's value that its dead letter keeps."""

_OTHERS: Final = "others"
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class LetterBounds:
    """The limits of one feed. again_seconds: until the next letter of the same writer and kind.

    per_minute_max: the letters of all writers in one minute. kinds_max: the most pairs of a writer and a kind of error
    that are counted separately; all others count as one writer.
    """

    again_seconds: float = 600.0
    per_minute_max: int = 10
    kinds_max: int = 200


DEFAULT_BOUNDS: Final = LetterBounds()


@dataclass(slots=True)
class _WriterLetters:
    """The last letter about one kind of error of one writer.

    at: its time, None without one. left_out: the number of records since then that are in no letter.
    """

    at: float | None = None
    left_out: int = 0


class LettersByWriter:
    """Decides which unreadable records get a dead letter, and counts the others. now: seconds of a monotonic clock."""

    def __init__(self, bounds: LetterBounds) -> None:
        self._bounds = bounds
        self._told: dict[Hashable, _WriterLetters] = {}
        self._at: deque[float] = deque()

    def admit_letter(self, topic: str, writer: str, kind: str, now: float) -> int | None:
        """Decides whether one more unreadable record gets a dead letter.

        Returns None if not. Otherwise returns how many records got none since the last letter of this writer and kind.
        """
        told = self._letters_of_writer((topic, writer, kind), (topic, _OTHERS, kind), now)
        if (told.at is not None and now < told.at + self._bounds.again_seconds) or not self._has_room(now):
            told.left_out += 1
            return None
        self._at.append(now)
        count, told.at, told.left_out = told.left_out, now, 0
        return count

    def _letters_of_writer(self, key: Hashable, others: Hashable, now: float) -> _WriterLetters:
        if key not in self._told and len(self._told) >= self._bounds.kinds_max:
            since = now - self._bounds.again_seconds
            self._told = {one: told for one, told in self._told.items() if told.at is not None and told.at > since}
            if len(self._told) >= self._bounds.kinds_max:
                key = others
        return self._told.setdefault(key, _WriterLetters())

    def _has_room(self, now: float) -> bool:
        while self._at and self._at[0] <= now - _MINUTE:
            self._at.popleft()
        return len(self._at) < self._bounds.per_minute_max


def writer_of(key: bytes | None, headers: Headers, partition: int) -> str:
    """Returns a name for the writer of a record: its ce_source, or else its key, or else only its partition."""
    source = dict(headers).get("ce_source")
    for word, name in (("source", source), ("key", key)):
        if name:
            text = name[: 4 * NAME_CHARACTERS_MAX].decode(errors="replace")[:NAME_CHARACTERS_MAX]
            return f"{word} {''.join(one if one.isprintable() else '?' for one in text)}"
    return f"partition {partition}"
