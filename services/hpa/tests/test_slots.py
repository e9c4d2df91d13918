"""Who is asked next of those that share a connection: whatever one policy asks, another's answers come in time."""

import asyncio
import heapq
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.slots import SlotQuestion, Slots
from hpa.external_metrics.slot_queue import SlotQueue

SLOW_SECONDS, FAST_SECONDS = 5.0, 0.1


def slot_question_from_text(text: str) -> SlotQuestion:
    """namespace/name, with a ! the slow ones."""
    namespace, _, name = text.rstrip("!").partition("/")
    return SlotQuestion(namespace, name, text.endswith("!"))


def text_of_question(one: SlotQuestion) -> str:
    return f"{one.namespace}/{one.name}{'!' * one.is_slow}"


ORDERS = (
    # Of four slots, three for slow ones: those that wait, and who of them is asked, in this order.
    pytest.param("a/x! a/x! a/x! a/x!", "a/x! a/x! a/x!", id="slow ones leave a slot"),
    pytest.param("a/x a/x a/x a/x a/x", "a/x a/x a/x a/x", id="fast ones may have all"),
    pytest.param("a/x! a/x! a/x! a/x! b/y", "a/x! b/y a/x! a/x!", id="a fast one comes before all slow ones but one"),
    pytest.param("a/x a/x a/x a/x b/y!", "b/y! a/x a/x a/x", id="and a slow one is not kept waiting by fast ones"),
    pytest.param("a/x a/x a/x b/y", "a/x b/y a/x a/x", id="namespaces take turns"),
    pytest.param("a/x a/x a/x a/z b/y", "a/x b/y a/z a/x", id="and policies within each"),
    pytest.param("a/x! a/x! b/y! c/z!", "a/x! b/y! c/z!", id="slow ones likewise"),
)


@pytest.mark.parametrize(("waiting", "expected"), ORDERS)
def test_who_is_asked(waiting: str, expected: str) -> None:
    slots = Slots(4, 3)
    for one in waiting.split():
        slots.enqueue_question(slot_question_from_text(one))
    found = []
    while (one := slots.start_next_question()) is not None:
        found.append(text_of_question(one))
    assert found == expected.split()


def test_the_namespace_of_which_fewest_are_asked_comes_first() -> None:
    slots = Slots(4, 3)
    a, b = ([slot_question_from_text(f"{name}/x") for _ in range(4)] for name in "ab")
    for one in a:
        slots.enqueue_question(one)
    assert [slots.start_next_question() for _ in range(3)] == a[:3]
    for one in b:
        slots.enqueue_question(one)
    assert slots.start_next_question() is b[0]
    slots.release_question(a[0])
    assert slots.start_next_question() is b[1]
    slots.release_question(a[1])
    assert slots.start_next_question() is a[3]  # One is asked for a, two for b.


def test_of_one_slot_slow_and_fast_ones_take_turns() -> None:
    slots, found = Slots(1, 1), []
    for _ in range(3):
        slots.enqueue_question(slot_question_from_text("a/x!"))
        slots.enqueue_question(slot_question_from_text("b/y"))
    while (one := slots.start_next_question()) is not None:
        found.append(one.namespace)
        slots.release_question(one)
    assert found == ["a", "b", "a", "b", "a", "b"]


def test_who_waits_no_longer_has_no_turn_and_nothing_is_kept_of_it() -> None:
    slots = Slots(1, 1)
    first, second, third = (slot_question_from_text(f"a/{name}") for name in "xyz")
    for one in (first, second, third):
        slots.enqueue_question(one)
    assert slots.start_next_question() is first
    slots.release_question(second)
    slots.release_question(first)
    assert slots.start_next_question() is third
    slots.release_question(third)
    assert slots.start_next_question() is None
    assert (slots._fast.waiting, slots._by_namespace, slots._by_policy, slots._asked) == ({}, {}, {}, set())


# ── In virtual time ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Policy:
    """questions: each asked every_seconds, and answered after seconds."""

    namespace: str
    name: str
    questions: int
    every_seconds: float
    seconds: float


@dataclass
class World:
    """Asks as collecting does: a question is asked again once it is answered and its interval is over."""

    slots: Slots
    policies: list[Policy]
    waits: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        """waits: of each policy's questions, and whether they were slow ones. Events are (time, number, kind, …)."""
        number, asked_at = 0, dict[SlotQuestion, tuple[float, Policy]]()
        events: list[tuple[float, int, str, Policy, SlotQuestion | None]] = []
        for policy in self.policies:
            for _ in range(policy.questions):
                events.append((0.0, number, "ask", policy, None))
                number += 1
        heapq.heapify(events)
        was_slow = dict[int, bool]()
        while events and events[0][0] <= seconds:
            now, of, kind, policy, one = heapq.heappop(events)
            if kind == "ask":
                one = SlotQuestion(policy.namespace, policy.name, was_slow.get(of, True))
                asked_at[one] = now, policy
                self.slots.enqueue_question(one)
                self._of[one] = of
            else:
                assert one is not None
                self.slots.release_question(one)
                since, _ = asked_at.pop(one)
                was_slow[of] = policy.seconds > 1.0
                again = max(now, since + policy.every_seconds)
                heapq.heappush(events, (again, of, "ask", policy, None))
            while (granted := self.slots.start_next_question()) is not None:
                since, whose = asked_at[granted]
                self.waits.setdefault(f"{whose.namespace}/{whose.name}", []).append((now - since, granted.is_slow))
                heapq.heappush(events, (now + whose.seconds, self._of[granted], "answer", whose, granted))

    _of: dict[SlotQuestion, int] = field(default_factory=dict)


@given(
    st.lists(
        st.builds(
            Policy,
            namespace=st.sampled_from(("shop", "toys", "bank")),
            name=st.sampled_from(("slow-1", "slow-2", "slow-3")),
            questions=st.integers(1, 64),
            every_seconds=st.just(1.0),
            seconds=st.sampled_from((2.0, SLOW_SECONDS)),
        ),
        max_size=12,
    ),
    st.sampled_from((2, 3, 8)),
)
def test_no_policys_slow_questions_keep_another_policys_waiting(slow: list[Policy], most: int) -> None:
    """Also in the same namespace. Once it is known to be answered soon, a question waits for no slow one. Before, it
    waits for one of each namespace whenever it is its own namespace's turn, which its policies take in turns."""
    pay = Policy("bank", "pay", 2, 2.0, FAST_SECONDS)
    world = World(Slots(most, max(1, int(most * 0.75))), [*slow, pay])
    world.run(200.0)
    fast = [waited for waited, is_slow in world.waits["bank/pay"] if not is_slow]
    first = [waited for waited, is_slow in world.waits["bank/pay"] if is_slow]
    assert len(first) == 2
    assert max(first) <= SLOW_SECONDS * (1 + 2 * 3 * 4)
    assert max(fast) <= pay.questions * FAST_SECONDS + 1e-9
    assert len(fast) > 30


# ── The queue ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_slot_is_free_again_however_its_question_ends() -> None:
    queue, running = SlotQueue(1, 1.0), list[str]()

    async def hold_slot_until(name: str, ends: asyncio.Event) -> None:
        async with queue.hold_slot(SlotQuestion("a", name, is_slow=False)):
            running.append(name)
            await ends.wait()
            if name == "fails":
                raise ZeroDivisionError

    async def let_tasks_run() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    ends = asyncio.Event()
    names = ("cancelled", "fails", "gone while it waits", "last")
    tasks = {name: asyncio.create_task(hold_slot_until(name, ends)) for name in names}
    await let_tasks_run()
    assert running == ["cancelled"]
    tasks["gone while it waits"].cancel()
    tasks["cancelled"].cancel()
    await let_tasks_run()
    assert running == ["cancelled", "fails"]
    ends.set()
    await let_tasks_run()
    assert running == ["cancelled", "fails", "last"]
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert [type(one).__name__ for one in ended] == [
        "CancelledError",
        "ZeroDivisionError",
        "CancelledError",
        "NoneType",
    ]


async def test_who_goes_away_as_its_turn_comes_gives_the_slot_on() -> None:
    queue = SlotQueue(1, 1.0)
    first, second, third = (SlotQuestion("a", name, is_slow=False) for name in "xyz")

    async def ask_in_slot(one: SlotQuestion) -> str:
        async with queue.hold_slot(one):
            return one.name

    async with queue.hold_slot(first):
        waiting, last = asyncio.create_task(ask_in_slot(second)), asyncio.create_task(ask_in_slot(third))
        await asyncio.sleep(0)
    waiting.cancel()  # It was given the slot, and has not run since.
    assert await asyncio.wait_for(last, 20) == "z"
    assert waiting.cancelled()
