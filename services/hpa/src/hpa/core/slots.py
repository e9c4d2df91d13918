"""Chooses the next question to one connection, so that slow questions of one policy do not delay others. Pure.

A question is slow until an answer came fast, and after each slow answer. The first row that fits decides:

| a slot is free, and | it goes to |
|---|---|
| a slow question waits, none is being asked, and the last slot went to a fast one | a slow one |
| a fast one waits | a fast one |
| a slow one waits, and fewer than slow_max are being asked | a slow one |
| else | nobody |

The slot goes to the namespace with the fewest questions being asked. Of several such namespaces, the one with the
longest wait since its last slot gets it. In the namespace, a policy is chosen by the same rule. Of the policy, the
question that came first is asked.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")


@dataclass(slots=True, eq=False)
class SlotQuestion:
    """One question that waits for a slot, or has one. namespace, name: the workload whose policy asks it."""

    namespace: str
    name: str
    is_slow: bool


@dataclass(slots=True)
class _Lane:
    """The waiting questions, by namespace and by policy. The dictionaries are in the order of turns."""

    waiting: dict[str, dict[str, deque[SlotQuestion]]] = field(default_factory=dict)

    def add_question(self, one: SlotQuestion) -> None:
        self.waiting.setdefault(one.namespace, {}).setdefault(one.name, deque()).append(one)

    def take_next_question(self, asked: Counter[str], asked_by_policy: Counter[tuple[str, str]]) -> SlotQuestion:
        """Removes and returns the next question. Its namespace and its policy go to the end of their orders."""
        namespace = _least_asked_key(self.waiting, lambda namespace: asked[namespace])
        policies = self.waiting[namespace]
        name = _least_asked_key(policies, lambda name: asked_by_policy[namespace, name])
        one = policies[name].popleft()
        self._move_policy_to_end(namespace, name)
        return one

    def remove_question(self, one: SlotQuestion) -> None:
        self.waiting[one.namespace][one.name].remove(one)
        self._drop_if_empty(one.namespace, one.name)

    def _move_policy_to_end(self, namespace: str, name: str) -> None:
        policies = self.waiting.pop(namespace)
        policies[name] = policies.pop(name)
        self.waiting[namespace] = policies
        self._drop_if_empty(namespace, name)

    def _drop_if_empty(self, namespace: str, name: str) -> None:
        policies = self.waiting[namespace]
        if not policies[name]:
            del policies[name]
        if not policies:
            del self.waiting[namespace]


def _least_asked_key(waiting: Iterable[K], asked: Callable[[K], int]) -> K:
    """Returns the first key with the fewest questions being asked.

    It stops at the first key without any, so it reads at most one key more than there are questions being asked.
    """
    seen: dict[K, int] = {}
    for one in waiting:
        seen[one] = asked(one)
        if not seen[one]:
            return one
    return min(seen, key=seen.__getitem__)


class Slots:
    """The slots of one connection. most: how many questions may run at once; slow_max: how many of them may be slow."""

    def __init__(self, most: int, slow_max: int) -> None:
        self._most = most
        self._slow_max = slow_max
        self._fast, self._slow = _Lane(), _Lane()
        self._asked: set[SlotQuestion] = set()
        self._slow_asked = 0
        self._by_namespace = Counter[str]()
        self._by_policy = Counter[tuple[str, str]]()
        self._last_was_slow = False

    def enqueue_question(self, one: SlotQuestion) -> None:
        """Adds a question that waits for a slot."""
        (self._slow if one.is_slow else self._fast).add_question(one)

    def release_question(self, one: SlotQuestion) -> None:
        """Removes a question that has its answer or stops waiting."""
        if one not in self._asked:
            (self._slow if one.is_slow else self._fast).remove_question(one)
            return
        self._asked.discard(one)
        self._slow_asked -= one.is_slow
        self._change_running_counts(one, -1)

    def start_next_question(self) -> SlotQuestion | None:
        """Gives a slot to the next question and returns it.

        Returns None if no question may start now. Call it again after `enqueue_question` or `release_question`.
        """
        lane = self._next_lane() if len(self._asked) < self._most else None
        if lane is None:
            return None
        one = lane.take_next_question(self._by_namespace, self._by_policy)
        self._asked.add(one)
        self._slow_asked += one.is_slow
        self._last_was_slow = one.is_slow
        self._change_running_counts(one, 1)
        return one

    def _next_lane(self) -> _Lane | None:
        slow_waits, fast_waits = bool(self._slow.waiting), bool(self._fast.waiting)
        if slow_waits and not self._slow_asked and not self._last_was_slow:
            return self._slow
        if fast_waits:
            return self._fast
        return self._slow if slow_waits and self._slow_asked < self._slow_max else None

    def _change_running_counts(self, one: SlotQuestion, by: int) -> None:
        """Adds `by` to the counts of running questions. Removes counts of 0, so that old policies take no memory."""
        place = one.namespace, one.name
        self._by_namespace[one.namespace] += by
        self._by_policy[place] += by
        if not self._by_namespace[one.namespace]:
            del self._by_namespace[one.namespace]
        if not self._by_policy[place]:
            del self._by_policy[place]
