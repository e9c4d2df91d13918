"""Removes virtual nodes that were left in a pool that had left the fleet: they are closed, emptied and deleted.

This begins when the pool has joined again. The lending rules and the real nodes do not matter: the real nodes have been
their owner's since then.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from spillway.clusters.api import ClusterUnreachable, Conflict, Refused
from spillway.model import NO_GENERATION
from spillway.running.isolation import ends_the_process, note_failed_work
from vk_bridge.cluster.answers import WriteAnswers
from vk_bridge.cluster.node_reader import NodeReader
from vk_bridge.cluster.node_writer import NodeWriter
from vk_bridge.cluster.pod_conversion import SERVICE
from vk_bridge.cluster.pod_writer import PodWriter
from vk_bridge.cluster.pools import Pool
from vk_bridge.core.node.steps import (
    DesiredLoan,
    has_nothing_left,
    is_loan_checked_for_pool,
    next_step,
    node_context,
)
from vk_bridge.core.pod.steps import pod_pairs, pod_step
from vk_bridge.core.selection.desired_loans import DesiredLoans
from vk_bridge.settings import VkBridgeSettings

NOT_WANTED = DesiredLoan(lend=False, loan=NO_GENERATION)
log = structlog.get_logger()


class LeftVirtualNodes:
    """Removes the virtual nodes of one owner that were left in pools.

    It works at the same time as the OwnerWorker. Each write names the version that it changes, so the two cannot
    overwrite each other's changes.

    say_cleared: is called with a node and a pool, when that pool has no virtual node of the node any more.
    """

    def __init__(
        self,
        reader: NodeReader,
        writer: NodeWriter,
        pod_writer: PodWriter,
        desired_loans: DesiredLoans,
        say_cleared: Callable[[str, str], None],
        settings: VkBridgeSettings,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._pod_writer = pod_writer
        self._desired_loans = desired_loans
        self._say_cleared = say_cleared
        self._settings = settings

    async def remove_virtual_nodes(self, found: Iterable[tuple[str, str]], pools: Callable[[str], Pool | None]) -> None:
        """Works on these nodes, given as node and pool. Work that is not done is left for the next call.

        Raises nothing.
        """
        slots, silent = asyncio.Semaphore(self._settings.nodes_at_once), set[str]()
        async with asyncio.TaskGroup() as group:
            for node, name in list(found):
                pool = pools(name)
                if pool is not None:
                    group.create_task(self._remove_virtual_node(node, pool, slots, silent))

    async def _remove_virtual_node(self, node: str, pool: Pool, slots: asyncio.Semaphore, silent: set[str]) -> None:
        """Removes one virtual node.

        silent: pools where a node or owner could not be read; they are not asked again now.
        """
        async with slots:
            try:
                for _ in range(self._settings.steps_max):
                    if pool.name in silent or not await self._carry_out_next_step(node, pool):
                        return
            except ClusterUnreachable:
                silent.add(pool.name)
            except (Conflict, Refused) as error:
                log.info(
                    "a virtual node that was left in a pool stays for now", pool=pool.name, node=node, error=str(error)
                )
            except Exception as error:
                if ends_the_process(error):
                    raise
                note_failed_work(SERVICE, "node", error, pool=pool.name, node=node, left_in_pool=True)

    async def _carry_out_next_step(self, node: str, pool: Pool) -> bool:
        """Makes the next step for a virtual node. Returns whether anything was written, so that more may follow.

        Raises ClusterUnreachable, Conflict and Refused.
        """
        read = await self._reader.read_node(node, pool.name, pool, self._desired_loans.virtual_node_spec)
        if not read.is_read_on_both_sides:
            raise ClusterUnreachable(pool.name, "timeout", "it or the owner could not be read")
        if is_loan_checked_for_pool(read.observation.node, pool.name):
            return False
        reading = self._reader.reading_as_never_lent(read)
        if reading is None or has_nothing_left(reading.observation):
            self._say_cleared(node, pool.name)
            return False
        answers, observation = WriteAnswers(), reading.observation
        step = next_step(observation, NOT_WANTED, observation.read_at, self._settings.in_flight_seconds)
        written = step is not None and await self._writer.carry_out_step(step, reading, answers)
        if written:
            log.info("carried out", step=type(step).__name__, pool=pool.name, node=node, left_in_pool=True)
        context = node_context(observation, NOT_WANTED, self._desired_loans.grace_seconds(node, observation))
        todo = (pod_step(*pair, context) for pair in pod_pairs(observation.pool_pods, observation.real_pods))
        written_pods, _ = await self._pod_writer.carry_out_steps(
            (one for one in todo if one is not None), reading, answers, lambda _: None
        )
        return written or written_pods
