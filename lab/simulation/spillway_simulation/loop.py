"""An event loop whose clock jumps to the next timer, and which can hold or drop what one process would run."""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""The process that a callback belongs to; empty for the world around them (members, network, users)."""

STEPS_AT_ONE_TIME_MAX = 200_000
"""So many callbacks without the clock moving are a busy loop."""


class BusyLoop(RuntimeError):
    """Virtual time stands still while callbacks run on and on."""


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and the simulation is not over."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run: sets of tasks are walked in the order of their numbers."""

    made = 0

    def __init__(self, coro: Coroutine[Any, Any, Any], **arguments: Any) -> None:
        SimTask.made += 1
        self._number = SimTask.made
        super().__init__(coro, **arguments)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in their order. Those of a frozen owner wait, as those of a stopped process do, and then go on."""

    # Of asyncio.BaseEventLoop, in CPython 3.11 to 3.14.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._held: dict[str, list[asyncio.Handle]] = {}
        self._dead: set[str] = set()
        self._kept: set[asyncio.Task[Any]] = set()
        self._countdowns: dict[str, tuple[int, Callable[[], None]]] = {}
        self._still = 0
        self.steps: Counter[str] = Counter()
        self.set_task_factory(self._make_task)
        SimTask.made = 0

    def time(self) -> float:
        return self._now

    # ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────

    def context_of(self, owner: str) -> Context:
        context = copy_context()
        context.run(OWNER.set, owner)
        return context

    def freeze_process(self, owner: str) -> None:
        """SIGSTOP: nothing of it runs from now on; what becomes due waits."""
        self._held.setdefault(owner, [])

    def wake_process(self, owner: str) -> None:
        """SIGCONT: what waited runs in the order in which it became ready."""
        if owner not in self._dead:
            self._ready.extend(self._held.pop(owner, ()))

    def kill_process(self, owner: str) -> None:
        """kill -9: nothing of it runs ever again, not even what a task would do at its end."""
        self._dead.add(owner)
        self.freeze_process(owner)
        self._countdowns.pop(owner, None)

    def run_after_steps(self, owner: str, steps: int, action: Callable[[], None]) -> None:
        """action happens before the callback of owner that comes after so many."""
        self._countdowns[owner] = (steps, action)

    def forget_action(self, owner: str, action: Callable[[], None]) -> None:
        """It does not happen any more."""
        if owner in self._countdowns and self._countdowns[owner][1] is action:
            del self._countdowns[owner]

    def revive_all_processes(self) -> None:
        """For the end alone: everything may run, so that it can be cancelled."""
        self._dead.clear()
        for owner in list(self._held):
            self.wake_process(owner)

    # ── The loop ────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_task(
        self, _: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **rest: Any
    ) -> "asyncio.Task[Any]":
        # Kept until done: a dropped task would run its finally blocks when the collector finds it, dead or not.
        task = SimTask(coro, loop=self, **rest)  # type: ignore[arg-type]
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    def _run_once(self) -> None:
        if not self._ready:
            self._jump_to_next_timer()
        self._take_due_timers()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER, "")  # type: ignore[attr-defined]
            if owner:
                if owner in self._countdowns:
                    self._count_down_steps(owner)
                if owner in self._held:
                    self._held[owner].append(handle)
                    continue
                self.steps[owner] += 1
            handle._run()
        self._still += 1
        if self._still > STEPS_AT_ONE_TIME_MAX:
            raise BusyLoop(f"at {self._now:.3f} s the clock does not move")

    def _count_down_steps(self, owner: str) -> None:
        steps, action = self._countdowns[owner]
        if steps > 0:
            self._countdowns[owner] = (steps - 1, action)
        else:
            del self._countdowns[owner]
            action()

    def _jump_to_next_timer(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]
        if not self._scheduled:
            if self._stopping:
                return
            raise Deadlock(f"at {self._now:.3f} s nothing is left to run")
        due = self._scheduled[0]._when  # type: ignore[attr-defined]
        if due > self._now:
            self._now = due
            self._still = 0

    def _take_due_timers(self) -> None:
        while self._scheduled and (self._scheduled[0]._when <= self._now or self._scheduled[0]._cancelled):  # type: ignore[attr-defined]
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle._cancelled:
                self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
