"""Computes how old our knowledge of a cluster is.

It keeps the watermark, the time up to which the state is known, and the reason when the watermark does not rise.
README.md has the state table.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from snapshot.core.rules import SnapshotRules
from spillway.troubles import NO_TROUBLE, Trouble, TroubleCode

NEVER_MS = -1


@dataclass(slots=True)
class _Source:
    """One stream of the cluster.

    listed: whether a list of its objects has ended.
    heard_at: the time of the last event, bookmark or end of a list.
    failure: the reason why the stream failed; NO_TROUBLE since the next event.
    count: the number of objects that we know.
    low, high: the lowest and highest count since the last probe started.
    differs_since: the time since which our count differs from the probes' count; None when it does not.
    unread: the reason why the stream is ignored, when our account has no right to it; else empty.
    """

    listed: bool = False
    heard_at: float = 0.0
    failure: Trouble = NO_TROUBLE
    unread: str = ""
    count: int = 0
    low: int = 0
    high: int = 0
    differs_since: float | None = None


@dataclass(frozen=True, slots=True)
class _SourceAnswer:
    counts: Mapping[str, int] = field(default_factory=dict)


class Age:
    """The age of one cluster's state. Callers report events with their time on one monotonic clock.

    Sources are named by their plural (nodes, pods, …).
    """

    def __init__(self, sources: tuple[str, ...], rules: SnapshotRules) -> None:
        self._rules = rules
        self._sources = {name: _Source() for name in sources}
        self._watermark: float | None = None
        self._connection_failure = NO_TROUBLE
        self._probe_failure = NO_TROUBLE
        self._answer: _SourceAnswer | None = None
        self._version: int | None = None
        """The resourceVersion of the last probe."""
        self._unwritable = NO_TROUBLE

    # ── What is heard ───────────────────────────────────────────────────────────────────────────────────────────

    def note_stream_alive(self, source: str, count: int, now: float, *, listed: bool = False) -> None:
        """Records that the stream is alive: an event, a bookmark or the end of a list came.

        count: the number of objects of this source after it. listed: whether it was the end of a list.
        """
        state = self._sources[source]
        state.listed = state.listed or listed
        state.heard_at, state.failure, state.unread, self._connection_failure = now, NO_TROUBLE, "", NO_TROUBLE
        state.count, state.low, state.high = count, min(state.low, count), max(state.high, count)
        if listed:
            state.differs_since, self._answer = None, None

    def note_stream_failed(self, source: str, why: Trouble) -> None:
        """Records that a stream failed, so that the watermark stays until the next event of the stream.

        why: the reason, without the name of the source.
        """
        self._sources[source].failure = why

    def note_stream_forbidden(self, source: str, why: str) -> None:
        """Records that our account may not read the source. The source is ignored until its next event."""
        state = self._sources[source]
        state.listed, state.failure, state.unread = False, NO_TROUBLE, why

    def note_connecting(self) -> None:
        """Records that a new connection begins with lists. Until they have ended, the state is not current."""
        self._answer, self._version = None, None
        for state in self._sources.values():
            state.listed, state.failure, state.unread, state.differs_since = False, NO_TROUBLE, "", None

    def note_connection_failed(self, why: Trouble) -> None:
        self._connection_failure = why

    def note_relisting(self, source: str) -> None:
        """Records that a new list of the source has begun; until its end the source is not current."""
        self._sources[source].listed = False
        self._sources[source].differs_since = None

    def note_probe_started(self, now: float) -> None:
        """Compares the counts of the previous probe with ours, and begins a new comparison.

        They agree if our count had the probe's value at any time since that probe began.
        """
        if self._answer is not None:
            for name, theirs in self._answer.counts.items():
                state = self._sources[name]
                if state.low <= theirs <= state.high:
                    state.differs_since = None
                elif state.differs_since is None:
                    state.differs_since = now
        self._answer = None
        for state in self._sources.values():
            state.low = state.high = state.count

    def note_probe_answered(
        self, started_at: float, counts: Mapping[str, int], doubtful: bool, now: float, version: int | None = None
    ) -> None:
        """Stores the answer of a probe and raises the watermark to the probe's start if all streams are current.

        doubtful: whether the node list is doubted; then the watermark stays.

        version: the resourceVersion of the counts, by a quorum read; None when it is no number. If it is lower than
            the version of the probe before, etcd was restored from a backup. Open watches then deliver nothing until
            the resourceVersions are as high as before. They never deliver the changes until then. So all kinds are
            listed again.
        """
        self._probe_failure, self._connection_failure = NO_TROUBLE, NO_TROUBLE
        if version is not None:
            before, self._version = self._version, version
            if before is not None and version < before:
                for state in self._sources.values():
                    state.differs_since = -math.inf
                return
        if not self.has_current_streams(now):
            return
        self._answer = _SourceAnswer(dict(counts))
        if not doubtful:
            self._watermark = max(started_at, started_at if self._watermark is None else self._watermark)

    def note_probe_failed(self, why: Trouble) -> None:
        self._probe_failure, self._answer = why, None

    def note_capacity_unwritable(self, why: str) -> None:
        """Records that the capacity is too large for a record. Readers see this as the cluster's trouble."""
        self._unwritable = Trouble(TroubleCode.UNWRITABLE, why)

    def clear_capacity_unwritable(self) -> None:
        """Removes the trouble of note_capacity_unwritable(), because writing the capacity is tried again."""
        self._unwritable = NO_TROUBLE

    # ── What follows from it ────────────────────────────────────────────────────────────────────────────────────

    def sources_to_relist(self, now: float) -> list[str]:
        """Returns the sources whose count has differed for too long; all of them when resourceVersions went back."""
        longest = self._rules.count_differs_seconds
        return [
            name
            for name, state in self._sources.items()
            if state.differs_since is not None and now - state.differs_since >= longest
        ]

    @property
    def is_fully_listed(self) -> bool:
        """Returns whether every source was listed, except those that our account may not read."""
        return all(state.listed or state.unread for state in self._sources.values())

    def has_current_streams(self, now: float) -> bool:
        """Returns whether all streams are listed and without trouble, and records can hold the capacity."""
        return self.is_fully_listed and not self._unwritable.text and not self._stream_trouble(now).text

    def cluster_trouble(self, now: float) -> Trouble:
        """Returns why the cluster cannot be followed; NO_TROUBLE when it can, or while it is only being listed.

        A connection failure comes first, because readers decide by it whether the cluster is lost.
        """
        found = (self._connection_failure, self._stream_trouble(now), self._probe_failure, self._unwritable)
        return next((one for one in found if one.text), NO_TROUBLE)

    @property
    def unread_kinds(self) -> str:
        """Returns the kinds that our account may not read, with the reason; empty when there are none."""
        return "; ".join(f"{name}: {state.unread}" for name, state in self._sources.items() if state.unread)

    def age_ms(self, now: float) -> int:
        """Returns the age of the watermark in milliseconds; NEVER_MS without a watermark."""
        return NEVER_MS if self._watermark is None else max(0, round((now - self._watermark) * 1000))

    def _stream_trouble(self, now: float) -> Trouble:
        for name, state in self._sources.items():
            if state.failure.text:
                return Trouble(state.failure.code, f"{name}: {state.failure.text}")
            if state.listed and now - state.heard_at > self._rules.stream_silence_seconds:
                why = f"{name}: nothing heard for {self._rules.stream_silence_seconds:g} s"
                return Trouble(TroubleCode.UNREACHABLE, why)
        return NO_TROUBLE
