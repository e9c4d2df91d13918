"""Access in memory to a simulated cluster: the Kubernetes REST API, with the faults that are set."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Final

from sim.cluster import SimCluster
from sim.core.errors import ApiError, expired, unauthorized, version_too_old
from sim.core.listing import encode
from sim.core.requests import Request, unauthorized_answer
from sim.core.rights import Account, forbidden_by_rights
from sim.core.routes import parse_route
from sim.core.usage import ROOT as METRICS_ROOT
from sim.core.usage import group_not_served, service_unavailable
from sim.pod_logs import is_log_path, log_chunks
from sim.watch import Watch, open_watch
from spillway.clusters.api import (
    ClusterUnreachable,
    MayWrite,
    Response,
    TransportStatus,
    WriteHeldBack,
    always_may_write,
    may_change,
)

GARBAGE: Final = b"<html><body>upstream connect error</body></html>"


class SimTransport:
    """A `spillway.clusters.api.Transport`. While the cluster is silent, requests wait for the caller's time-out."""

    def __init__(self, cluster: SimCluster, token: str = "sim", account: Account | None = None) -> None:
        self._cluster = cluster
        self._token = token
        self._account = account or Account()
        self._closed = asyncio.Event()
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
        request = Request(method, path, params, body, content_type, accept)
        await self._wait_out_faults(request)
        if may_change(method, params) and not self.may_write():
            raise WriteHeldBack
        faults = self._cluster.faults
        if faults.unauthorized or self._token != self._cluster.token:
            return Response(*unauthorized_answer())
        if faults.garbage:
            return Response(200, GARBAGE)
        refusal = self._refusal_answer(request)
        if refusal is not None:
            return Response(*refusal)
        if faults.metrics and path.startswith(METRICS_ROOT):
            trouble = group_not_served() if faults.metrics == "absent" else service_unavailable()
            return Response(trouble.code, encode(trouble.status()))
        self._cluster.advance_clock()
        return Response(*self._cluster.api.answer_request(request))

    async def stream(
        self, path: str, params: Mapping[str, str], accept: str = "application/json"
    ) -> AsyncGenerator[bytes, None]:
        """Yields an empty chunk when the stream is open, then whole lines. Ends cleanly, as the API server ends it."""
        await self._wait_out_faults(Request("GET", path, params))
        if is_log_path(path):
            async with aclosing(self._stream_log(path, params)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        watch = self._open_watch(path, params, accept)
        self._cluster.add_waker(watch.plural, watch.waker)
        try:
            yield b""
            async for chunk in self._follow_watch(watch):
                yield chunk
        finally:
            self._cluster.remove_waker(watch.plural, watch.waker)

    async def close(self) -> None:
        self._closed.set()
        self._cluster.wake_streams()

    async def _stream_log(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        cluster = self._cluster
        self._check_allowed(Request("GET", path, params))
        cluster.advance_clock()
        epoch = cluster.stream_epoch
        try:
            async with aclosing(log_chunks(cluster, parse_route(path), params, lambda: self._is_over(epoch))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ApiError as error:
            raise TransportStatus(error.code, encode(error.status())) from error

    def _check_allowed(self, request: Request) -> None:
        if self._cluster.faults.unauthorized or self._token != self._cluster.token:
            raise TransportStatus(*unauthorized_answer())
        refusal = self._refusal_answer(request)
        if refusal is not None:
            raise TransportStatus(*refusal)

    def _refusal_answer(self, request: Request) -> tuple[int, bytes] | None:
        by_fault = forbidden_by_rights(request, self._cluster.faults.forbidden)
        return by_fault or self._account.refusal_answer(self._cluster.api, request)

    def _open_watch(self, path: str, params: Mapping[str, str], accept: str) -> Watch:
        cluster = self._cluster
        self._check_allowed(Request("GET", path, params))
        try:
            if cluster.faults.expire_history == "status" and params.get("resourceVersion", "0") != "0":
                current = cluster.control_plane.world.store.version
                raise version_too_old(int(params["resourceVersion"]), current)
            return open_watch(cluster.api, cluster.control_plane.world.store, cluster.settings, (path, params, accept))
        except ApiError as error:
            raise TransportStatus(error.code, encode(error.status())) from error

    async def _follow_watch(self, watch: Watch) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        epoch, end_at = self._cluster.stream_epoch, loop.time() + watch.timeout_seconds
        bookmark_at = loop.time() + self._cluster.settings.bookmark_seconds
        while True:
            watch.waker.clear()
            faults = self._cluster.faults
            if not faults.silent:
                if self._is_over(epoch) or loop.time() >= end_at:
                    return
                last_words = _closing_fault_text(self._cluster, watch)
                if last_words:
                    yield last_words
                    return
                chunk = watch.read_chunk()
                if chunk:
                    yield chunk
                if watch.is_lost or watch.has_more:
                    if watch.is_lost:
                        return
                    continue
                if loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + self._cluster.settings.bookmark_seconds
                    if watch.bookmarks and (mark := watch.bookmark_line()):
                        yield mark
            elif self._closed.is_set() or self._cluster.is_closed:
                return
            await _wait_for_waker(watch.waker, None if faults.silent else min(bookmark_at, end_at))

    def _is_over(self, epoch: int) -> bool:
        dropped = self._cluster.faults.drop_watches or self._cluster.stream_epoch != epoch
        return dropped or self._closed.is_set() or self._cluster.is_closed

    async def _wait_out_faults(self, request: Request) -> None:
        """Waits for as long as the faults require."""
        self._check_open()
        cluster = self._cluster
        if cluster.faults.latency_seconds:
            await asyncio.sleep(cluster.faults.latency_seconds)
        stalls = request.is_list and "watch" not in request.params
        while cluster.faults.silent or (stalls and cluster.faults.stall_list):
            changed = asyncio.ensure_future(cluster.wait_for_fault_change())
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                await asyncio.wait((changed, closed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                closed.cancel()
            self._check_open()

    def _check_open(self) -> None:
        if self._closed.is_set() or self._cluster.is_closed:
            raise ClusterUnreachable(self._cluster.name, "closed", "the simulated cluster or the transport is closed")


def _closing_fault_text(cluster: SimCluster, watch: Watch) -> bytes:
    """Returns the text that a fault puts into the stream before its end."""
    if cluster.faults.garbage:
        return GARBAGE + b"\n"
    if cluster.faults.unauthorized:
        return watch.error_line(unauthorized())
    if cluster.faults.expire_history and not watch.is_fresh:
        return watch.error_line(expired("The resourceVersion for the provided watch is too old."))
    return b""


async def _wait_for_waker(waker: asyncio.Event, until: float | None) -> None:
    try:
        async with asyncio.timeout_at(until):
            await waker.wait()
    except TimeoutError:
        return
