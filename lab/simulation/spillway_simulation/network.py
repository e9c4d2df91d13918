"""The way between a service and a member: takes time, loses answers, and carries on when the sender is gone."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import Context
from random import Random

from sim.cluster import SimCluster
from sim.core.requests import Request
from sim.core.rights import Account
from sim.rest import SimTransport
from spillway.clusters.api import ClusterUnreachable, MayWrite, Response, WriteHeldBack, always_may_write, may_change
from spillway_simulation.loop import OWNER
from spillway_simulation.ownership import SENT

LATENCY_SECONDS = (0.001, 0.02)


class Network:
    """The network between all services and all members.

    flaky: by member, how likely an answer gets lost. world: the context of what belongs to no process.
    before_write: by the path of an object, what happens once, just before the next write to it is sent. It is told the
    process that sends the write.
    """

    def __init__(self, random: Random, world: Context) -> None:
        self.random = random
        self.world = world
        self.flaky: dict[str, float] = {}
        self.before_write: dict[str, Callable[[str], None]] = {}


class SimulatedTransport:
    """One process's connections to one member.

    The member carries out a request that was sent, also when its sender died or closed its connections meanwhile.
    """

    def __init__(self, network: Network, cluster: SimCluster, account: Account) -> None:
        self._network = network
        self._cluster = cluster
        self._sent = SimTransport(cluster, account=account)
        self._streams = SimTransport(cluster, account=account)
        self._is_closed = False
        self.may_write: MayWrite = always_may_write

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        if may_change(method, params):
            await self._act_before_write(path)
            if not self.may_write():
                raise WriteHeldBack
        if self._is_closed:
            raise ClusterUnreachable(self._cluster.name, "closed", "the simulated transport is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        request = Request(method, path, params, body, content_type, accept)
        context = self._network.world.copy()
        context.run(SENT.set, loop.time())
        loop.create_task(self._carry_request(request, answer), context=context)  # noqa: RUF006 - the loop keeps it
        return await answer

    def stream(
        self, path: str, params: Mapping[str, str], accept: str = "application/json"
    ) -> AsyncGenerator[bytes, None]:
        return self._streams.stream(path, params, accept)

    async def close(self) -> None:
        self._is_closed = True
        await self._streams.close()

    async def _act_before_write(self, path: str) -> None:
        act = self._network.before_write.pop(path, None)
        if act is not None:
            self._network.world.copy().run(act, OWNER.get())
            await asyncio.sleep(0)  # A process that was frozen here goes on when it wakes.

    async def _carry_request(self, request: Request, answer: "asyncio.Future[Response]") -> None:
        network = self._network
        await asyncio.sleep(network.random.uniform(*LATENCY_SECONDS))
        lost = network.random.random() < network.flaky.get(self._cluster.name, 0.0)
        if lost and network.random.random() < 0.5:
            self._fail_answer(answer)  # It did not even arrive.
            return
        try:
            response = await self._sent.request(
                request.method, request.path, request.params, request.body, request.content_type, request.accept
            )
        except ClusterUnreachable as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if lost:
            self._fail_answer(answer)
        elif not answer.done():
            answer.set_result(response)

    def _fail_answer(self, answer: "asyncio.Future[Response]") -> None:
        if not answer.done():
            error = ClusterUnreachable(self._cluster.name, "connection", "the simulated network lost the answer")
            answer.set_exception(error)
