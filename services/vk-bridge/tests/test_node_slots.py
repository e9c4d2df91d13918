"""What an owner waits for goes first, and nothing else stops for it."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from vk_bridge.node_slots import NodeSlots


async def _let_tasks_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Works:
    """Nodes that hold their slot until they are let go."""

    def __init__(self, slots: NodeSlots) -> None:
        self._slots = slots
        self._group = AsyncExitStack()
        self.running = Counter[bool]()
        self.tasks: list[tuple[bool, asyncio.Event, asyncio.Task[None]]] = []

    def start_nodes(self, recalled: bool, count: int) -> None:
        for _ in range(count):
            end = asyncio.Event()
            self.tasks.append((recalled, end, asyncio.create_task(self._hold_slot_until(recalled, end))))

    async def end_oldest_nodes(self, recalled: bool, count: int) -> None:
        """Of those that run, or wait, the oldest."""
        for one in [one for one in self.tasks if one[0] == recalled][:count]:
            self.tasks.remove(one)
            one[1].set()
        await _let_tasks_run()

    async def _hold_slot_until(self, recalled: bool, end: asyncio.Event) -> None:
        async with self._slots.hold_slot(recalled=recalled):
            self.running[recalled] += 1
            try:
                await end.wait()
            finally:
                self.running[recalled] -= 1


async def test_beside_recalled_nodes_few_others_are_worked_on() -> None:
    works = Works(NodeSlots(6, 2))
    works.start_nodes(False, 9)
    await _let_tasks_run()
    assert works.running[False] == 6
    works.start_nodes(True, 3)
    await _let_tasks_run()
    assert works.running[True] == 0, "all slots are taken"
    await works.end_oldest_nodes(False, 3)
    assert (works.running[True], works.running[False]) == (3, 3)
    await works.end_oldest_nodes(False, 2)
    assert (works.running[True], works.running[False]) == (3, 2), "one more had room, two is what there may be"
    await works.end_oldest_nodes(True, 3)
    assert (works.running[True], works.running[False]) == (0, 4), "all that are left"
    await works.end_oldest_nodes(False, 4)


async def test_one_that_is_cancelled_while_it_waits_or_works_leaves_nothing() -> None:
    slots = NodeSlots(1, 1)
    works = Works(slots)
    works.start_nodes(True, 2)
    await _let_tasks_run()
    works.start_nodes(False, 1)
    await _let_tasks_run()
    for _, _, task in works.tasks[:2]:
        task.cancel()
    await _let_tasks_run()
    assert (works.running[True], works.running[False]) == (0, 1)
    await works.end_oldest_nodes(True, 2)
    await works.end_oldest_nodes(False, 1)
