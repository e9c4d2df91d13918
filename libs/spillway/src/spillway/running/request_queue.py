"""The way of a request into the log: it waits in a bounded queue, is decided in a group, written, and answered."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any, Final, Generic, TypeVar

import structlog

from spillway import tracing
from spillway.addresses import Tombstone
from spillway.api import RequestError
from spillway.bus import Headers, Outgoing
from spillway.dead_letters import EventTooLarge, UnwritableEvent, outgoing_record
from spillway.events import Event
from spillway.model import Generation
from spillway.places import may_take_places
from spillway.reasons import RECORD_TOO_LARGE, TOO_MANY_WAIT
from spillway.running.caller_turns import CallerTurns
from spillway.settings import constant
from spillway.waiting import loop_seconds

T = TypeVar("T")
Written = Event | Tombstone
Decide = Callable[[Generation], tuple[Sequence[Written], T]]
"""A function that decides one request and returns its events and its answer. It raises NotYet, or a RequestError, which
is then the answer."""
Apply = Callable[[Sequence[Written]], object]
"""A function that applies the decided events to the state."""

SPARE_BYTES: Final = 64 * 1024
"""The bytes of a record that requests may not fill. They are left for additions that come without a request."""

log = structlog.get_logger()


class NotYet(Exception):
    """Raised if a request cannot be decided now. It is put off until a requeue_due_requests() queues it again.

    due: returns whether the next requeue_due_requests() must do so. None: it does so in any case, and until then this
    request holds up others.
    held_up: a value of the service that says what it holds up; see RequestQueue.held_up.
    """

    def __init__(self, due: Callable[[], bool] | None = None, held_up: object = None) -> None:
        super().__init__()
        self.due, self.held_up = due, held_up


class BugMet(Exception):
    """Raised after a bug while a request was decided. The state may have only a part of the effect.

    The turn must end, and the log must be read again.
    """


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The limits of a service's requests. The service's own settings include them."""

    requests_waiting_max: int = constant(
        1_000,
        "largest number of requests that wait for a decision; further requests are refused",
        "this bounds memory and the wait of the last request; the planner, which gets most requests, has a setting",
    )
    requests_for_each_free: float = constant(
        1.0,
        "number of requests of one caller that may wait for each free place; 1: half of the places",
        "this leaves half of the free places to the next caller",
    )
    requests_in_group_max: int = constant(
        1_000,
        "largest number of requests that one transaction decides and writes",
        "this bounds one step, and larger transactions are no faster",
    )
    group_seconds: float = constant(
        0.25,
        "seconds after which a transaction gets no further request or batch",
        "this bounds how long others wait behind requests that are slow to decide, and is far from the turn's time-out",
    )
    group_bytes_max: int = constant(
        8 * 2**20,
        "bytes of records after which a transaction gets no further request or batch",
        "a broker takes so much at once, and each reader of the log holds it in memory",
    )
    batch_seconds: float = constant(
        0.5,
        "seconds after which a transaction gets no further request of the same batch; a later one goes on with it",
        "a batch of a hundred requests takes less, and is one transaction; others wait for one batch at most",
    )
    requests_passed_over_max: int = constant(
        10,
        "number of groups that may be decided before a request of a lower priority; then that request goes first",
        "no request waits for ever, and priorities still count",
    )
    request_seconds: float = constant(
        10.0,
        "longest time in seconds that a request waits for its transaction",
        "the waits of the planner's protocol are parts of it, and callers repeat a request with the same key",
    )


@dataclass(slots=True, eq=False)
class WaitingCall(Generic[T]):
    """A request that waits for its decision. verb, trace: for its span.

    batch: requests of one batch are decided in one step if that takes no longer than batch_seconds; None: of none.
    about: the subject of the request. Of two requests about one subject the earlier one is decided first. None: it has
    no subject.
    caller: its name; empty when callers are not identified, or for our own requests.
    number: rises with each request that is put into the queue. passed_over: groups that were decided while it waited.
    is_decided: its effects are on their way into the log.
    late: called when its time is over before it is decided.
    """

    decide: Decide[T]
    answer: "asyncio.Future[T]"
    verb: str
    trace: Headers
    batch: object = None
    priority: int = 0
    about: Hashable = None
    caller: str = ""
    number: int = 0
    passed_over: int = 0
    is_decided: bool = False
    late: Callable[[], object] = lambda: None

    def fail_call(self, error: RequestError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class _PutOff:
    """A request that is put off, followed by the later ones about the same subject. due, held_up: as in NotYet."""

    due: Callable[[], bool] | None
    requests: list[WaitingCall[Any]]
    held_up: object = None

    @property
    def has_waiting_caller(self) -> bool:
        return any(not waiting.answer.done() for waiting in self.requests)


@dataclass(slots=True)
class Decisions:
    """The result of one step: events for one transaction, with their traces, and answers that go out after the write.

    refusals: answers, too. They also wait for the write: without it, the room that this step gives to another request
    is still free.
    records: the bytes of each event. They are made before the event is applied to the state. So an event that no record
    can hold fails only its request, and does not end the turn (docs/adr/0037).
    record_bytes: the bytes of all records' values.
    """

    events: list[Written] = field(default_factory=list)
    records: list[Outgoing] = field(default_factory=list)
    answers: list[tuple[WaitingCall[Any], Any]] = field(default_factory=list)
    refusals: list[tuple[WaitingCall[Any], RequestError]] = field(default_factory=list)
    traces: dict[int, Headers] = field(default_factory=dict)
    record_bytes: int = 0

    def add_events(self, events: Sequence[Written], trace: Headers = (), spare_bytes: int = 0) -> None:
        """Adds events that are decided and not applied yet. Adds all of them, or none and raises UnwritableEvent.

        trace: the trace of these events. spare_bytes: the part of a record's size limit that each must leave free.
        """
        records = [outgoing_record(event, spare_bytes) for event in events]
        first = len(self.events)
        self.events.extend(events)
        self.records.extend(records)
        self.record_bytes += sum(len(record.value or b"") for record in records)
        if trace:
            self.set_trace_from(first, trace)

    def set_trace_from(self, first: int, trace: Headers) -> None:
        """Sets the trace of all events from index `first` on."""
        self.traces.update(dict.fromkeys(range(first, len(self.events)), trace))

    @property
    def answer_count(self) -> int:
        """Returns the number of requests that this step answers."""
        return len(self.answers) + len(self.refusals)

    def merge_answers(self, other: "Decisions") -> None:
        """Adds the answers and refusals of another step to this one's."""
        self.answers.extend(other.answers)
        self.refusals.extend(other.refusals)

    def send_answers(self) -> None:
        for waiting, reply in self.answers:
            if not waiting.answer.done():
                waiting.answer.set_result(reply)
        for waiting, error in self.refusals:
            waiting.fail_call(error)

    def fail_requests(self, why: str) -> None:
        for waiting in (*(entry[0] for entry in self.answers), *(entry[0] for entry in self.refusals)):
            waiting.fail_call(RequestError("UNAVAILABLE", why))


_Run = list[WaitingCall[Any]]
_Level = int
"""The urgency of a run, its negated priority; the lowest comes first."""
_Place = TypeVar("_Place", _Level, tuple[_Level, float, float, int])
"""A level; or a level, the start by CallerTurns, the seconds that the run is expected to take, and the index in the
queue. The lowest is decided first."""


class RequestQueue:
    """The requests that wait for a decision. asked: an event that is set while there is a request to decide.

    retry: a text for callers without an answer, about what they may do. clock: in seconds, to bound a group's time.
    Requests go by priority, then callers take turns by the time that their requests take (caller_turns.py), then in the
    order of arrival. A request that was passed over by requests_passed_over_max groups has the highest priority that
    waits, so that none waits for ever. Callers take turns there, too: a long backlog of one caller that waited for long
    does not come before others' new requests.
    """

    def __init__(self, settings: RequestSettings, retry: str, clock: Callable[[], float] = loop_seconds) -> None:
        self.asked = asyncio.Event()
        self.retry = retry
        self._settings = settings
        self._clock = clock
        self._waiting: list[WaitingCall[Any]] = []
        self._numbers = count()
        self._turns = CallerTurns()
        self._put_off: list[_PutOff] = []
        self._put_off_last: dict[Hashable, _PutOff] = {}
        """The last request that was put off, by its subject. Nobody waits for the earlier ones any more."""

    def check_room(self, requests: int, caller: str = "") -> None:
        """Raises RequestError RESOURCE_EXHAUSTED unless the queue has room for so many more requests of this caller.

        Requests that are put off have a place, too: they come back to the queue.
        """
        put_off = (waiting for one in self._put_off for waiting in one.requests if not waiting.answer.done())
        there = [*self._waiting, *put_off]
        waiting, most = len(there), self._settings.requests_waiting_max
        own = sum(one.caller == caller for one in there) if caller else 0
        if waiting + requests > most:
            text = f"{waiting} requests wait already; {self.retry}"
        elif caller and not may_take_places(own, waiting, requests, most, self._settings.requests_for_each_free):
            text = (
                f"{own} requests of caller {caller!r} wait already, and {most - waiting} places are free; {self.retry}"
            )
        else:
            return
        raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_WAIT)

    def put_request(
        self,
        decide: Decide[T],
        verb: str,
        batch: object = None,
        priority: int = 0,
        about: Hashable = None,
        caller: str = "",
    ) -> WaitingCall[T]:
        answer = asyncio.get_running_loop().create_future()
        trace, number = tracing.current_trace_headers(), next(self._numbers)
        waiting = WaitingCall(decide, answer, verb, trace, batch, priority, about, caller, number)
        self._waiting.append(waiting)
        self.asked.set()
        return waiting

    async def wait_for_answer(self, waiting: WaitingCall[T]) -> T:
        """Returns the answer to a request. Raises its RequestError, or UNAVAILABLE after request_seconds."""
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await waiting.answer
        except TimeoutError:
            if not waiting.is_decided:
                waiting.late()
            raise RequestError("UNAVAILABLE", f"no answer from the log in time: {self.retry}") from None

    def decide_next_group(
        self,
        next_generation: Callable[[], Generation],
        onto: Decisions | None = None,
        apply: Apply | None = None,
    ) -> Decisions:
        """Decides the next group; each request gets a generation of its own. onto: earlier decisions of the same step.

        The group ends at requests_in_group_max, group_seconds or group_bytes_max, or within a batch at batch_seconds.
        apply: applies the events of a decision to the state. Then a bug costs only the request that met it. None:
        deciding itself may have changed the state, and a bug raises BugMet.
        """
        decided, settings = Decisions() if onto is None else onto, self._settings
        taken, began = set[WaitingCall[Any]](), self._clock()
        until, batch_until = began + settings.group_seconds, began + settings.batch_seconds
        bytes_until = decided.record_bytes + settings.group_bytes_max
        try:
            for run in self._ordered_runs():
                is_full = len(taken) >= settings.requests_in_group_max or decided.record_bytes >= bytes_until
                if taken and (is_full or self._clock() >= until):
                    break
                run_began, before = self._clock(), len(taken)
                for waiting in run:
                    if taken and self._clock() >= batch_until:
                        break
                    taken.add(waiting)
                    self._decide_request(waiting, next_generation, decided, apply)
                if len(taken) > before:
                    self._turns.note_served_requests(run[0].caller, len(taken) - before, self._clock() - run_began)
        finally:
            self._turns.forget_past_ends()
            self._waiting = [waiting for waiting in self._waiting if waiting not in taken]
        for waiting in self._waiting:
            waiting.passed_over += 1
        if self._waiting:
            self.asked.set()
        return decided

    def _decide_request(
        self,
        waiting: WaitingCall[Any],
        next_generation: Callable[[], Generation],
        decided: Decisions,
        apply: Apply | None,
    ) -> None:
        """Decides one request of a group: adds its events with its answer or refusal, or puts it off."""
        if waiting.answer.done():  # Its caller went away before a decision.
            return
        before = self._earlier_put_off(waiting)
        if before is not None:
            before.requests.append(waiting)
            return
        started_ns = tracing.clock_ns()
        try:
            events, reply = waiting.decide(next_generation())
            trace = tracing.record_decision(f"decide {waiting.verb}", waiting.trace, started_ns)
            decided.add_events(events, trace, SPARE_BYTES)
        except NotYet as not_yet:
            self._put_request_off(_PutOff(not_yet.due, [waiting], not_yet.held_up))
            return
        except RequestError as error:
            decided.refusals.append((waiting, error))
            return
        except UnwritableEvent as error:
            if apply is None:  # Its effect is in the state already.
                waiting.fail_call(_refusal_of_unwritable(error))
                decided.fail_requests(f"the effects of another request cannot be written: {self.retry}")
                raise BugMet(str(error)) from error
            decided.refusals.append((waiting, _refusal_of_unwritable(error)))
            return
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            waiting.fail_call(
                RequestError("INTERNAL", f"a bug stopped this request, and nothing of it was done: {what}")
            )
            if apply is None:
                decided.fail_requests(f"a bug stopped another request: {self.retry}")
                raise BugMet(what) from error
            log.exception("a bug in a decision")
            return
        if apply is not None:
            apply(events)
        decided.answers.append((waiting, reply))
        waiting.is_decided = True

    def _earlier_put_off(self, waiting: WaitingCall[Any]) -> _PutOff | None:
        """Returns the earlier request about the same subject that was put off and still waits; None without one."""
        last = None if waiting.about is None else self._put_off_last.get(waiting.about)
        return last if last is not None and last.has_waiting_caller else None

    def _put_request_off(self, one: _PutOff) -> None:
        self._put_off.append(one)
        self._put_off_last[one.requests[0].about] = one

    @property
    def held_up(self) -> list[object]:
        """Returns what the requests hold up that are put off until the next requeue_due_requests(); see NotYet."""
        return [one.held_up for one in self._put_off if one.due is None and one.has_waiting_caller]

    def requeue_due_requests(self) -> None:
        """Puts requests that were put off, and are due now, at the end of the queue."""
        held_up = [one for one in self._put_off if one.due is None]
        later = [(one, one.due()) for one in self._put_off if one.due is not None]
        self._put_off, self._put_off_last = [], {}
        for one in (one for one, is_due in later if not is_due):
            self._put_request_off(one)
        for one in (*(one for one, is_due in later if is_due), *held_up):
            self._waiting.extend(one.requests)

    @property
    def lowest_priority(self) -> int | None:
        """Returns the lowest priority of the requests that wait to be decided; None if none waits."""
        return min((one.priority for one in self._waiting), default=None)

    def refuse_all(self, why: str) -> None:
        """Answers all waiting requests with UNAVAILABLE."""
        refused = (*self._waiting, *(waiting for one in self._put_off for waiting in one.requests))
        self._waiting, self._put_off, self._put_off_last = [], [], {}
        for waiting in refused:
            waiting.fail_call(RequestError("UNAVAILABLE", why))

    def _ordered_runs(self) -> list[_Run]:
        """Returns the runs in the order of their decision. A run is a whole batch, or one request without a batch.

        A request is decided no later than each later request about the same subject, which must wait for it. That
        holds also where it was put off, so that it stands behind the later one in the queue.
        """
        by_batch = groupby(self._waiting, lambda one: id(one if one.batch is None else one.batch))
        runs = [sorted(run, key=lambda one: one.number) for _, run in by_batch]
        longest = self._settings.requests_passed_over_max
        waited_long = [max(one.passed_over for one in run) >= longest for run in runs]
        levels = _kept_in_order(runs, _levels_of_runs(runs, waited_long))
        seconds = [len(run) * self._turns.expected_seconds(run[0].caller) for run in runs]
        starts = self._expected_starts(runs, levels, seconds)
        # Of runs with one start the shorter one comes first, but not before a batch that waited for long.
        lengths = [0.0 if is_over else most for is_over, most in zip(waited_long, seconds, strict=True)]
        order = _kept_in_order(runs, list(zip(levels, starts, lengths, range(len(runs)), strict=True)))
        return [runs[index] for index in sorted(range(len(runs)), key=lambda one: (order[one], runs[one][0].number))]

    def _expected_starts(self, runs: Sequence[_Run], levels: Sequence[_Level], seconds: Sequence[float]) -> list[float]:
        """Returns the start of each run by CallerTurns: after those of its caller that come before it.

        seconds: how long each run is expected to take.
        """
        starts, next_starts = [0.0] * len(runs), dict[str, float]()
        for index in sorted(range(len(runs)), key=lambda one: (levels[one], one)):
            caller = runs[index][0].caller
            starts[index] = next_starts.get(caller, self._turns.next_start(caller))
            next_starts[caller] = starts[index] + seconds[index]
        return starts


def _kept_in_order(runs: Sequence[_Run], places: Sequence[_Place]) -> list[_Place]:
    """Returns each run's place, the lowest first, but none above that of a later run about the same subject."""
    found, least = list(places), dict[Hashable, _Place]()
    for index in sorted(range(len(runs)), key=lambda one: -runs[one][0].number):
        subjects = [one.about for one in runs[index] if one.about is not None]
        found[index] = min(found[index], *(least.get(about, found[index]) for about in subjects), found[index])
        least.update(dict.fromkeys(subjects, found[index]))
    return found


def _levels_of_runs(runs: Sequence[_Run], waited_long: Sequence[bool]) -> list[_Level]:
    """Returns the level of each run: of its highest priority; if it waited for long, of the highest one that waits."""
    levels = [-max(one.priority for one in run) for run in runs]
    first = min(levels, default=0)
    return [first if is_over else level for is_over, level in zip(waited_long, levels, strict=True)]


def _refusal_of_unwritable(error: UnwritableEvent) -> RequestError:
    """Returns the refusal of a request whose effect no record can hold. Nothing changed; it must not be repeated."""
    if isinstance(error, EventTooLarge):
        sizes = {"field": error.field, "bytes": str(error.size), "bytes_max": str(error.size_max)}
        text = f"what follows from this request is too large for the log: {error}"
        return RequestError("FAILED_PRECONDITION", text, RECORD_TOO_LARGE, sizes)
    return RequestError("INTERNAL", f"the effects of this request cannot be written: {error}")
