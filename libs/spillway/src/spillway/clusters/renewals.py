"""Keeps the credentials of one cluster. They are read in a thread of their own, once for all callers, and renewed in
time."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from spillway.clusters.endpoint import BadCredentials, Endpoint, stamps_of
from spillway.clusters.settings import RenewalSettings

log = structlog.get_logger()


class Credentials:
    """One cluster's endpoint, shared by all sessions. One reading runs at a time, and all waiting callers get its
    outcome.

    read: reads the endpoint. It may wait for a slow disk or an exec plugin, so it gets a thread of its own.
    now: returns the time in Unix seconds.
    """

    def __init__(
        self,
        read: Callable[[], Endpoint],
        settings: RenewalSettings | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read = read
        self._settings = settings or RenewalSettings()
        self._now = now
        self._endpoint: Endpoint | None = None  # None: the next request waits for a reading.
        self._reading: asyncio.Future[Endpoint] | None = None
        self._renew_at = math.inf  # Unix seconds. From then on a request begins a reading, without waiting for it.
        self._ends_at = math.inf  # Unix seconds. From then on requests wait for a reading.

    async def current_endpoint(self) -> Endpoint:
        """Returns the endpoint. Raises BadCredentials, also when the reading takes too long."""
        now, endpoint = self._now(), self._endpoint
        if endpoint is None or now >= self._ends_at:
            return await self._await_reading()
        if now >= self._renew_at:
            self._begin_reading()
        return endpoint

    def discard_endpoint(self, endpoint: Endpoint) -> None:
        """Makes the next request read the credentials again, unless that happened after another request was refused."""
        if self._endpoint is endpoint:
            self._endpoint = None

    async def _await_reading(self) -> Endpoint:
        reading, seconds = self._begin_reading(), self._settings.reading_seconds
        await asyncio.wait([reading], timeout=seconds)
        if not reading.done():
            raise BadCredentials(f"the kubeconfig: expected to be read within {seconds:g} s, and it still is not")
        return reading.result()

    def _begin_reading(self) -> asyncio.Future[Endpoint]:
        """Returns the reading that is under way, or starts a new one."""
        if self._reading is None:
            known = self._endpoint
            self._reading = run_in_own_thread(lambda: self._read_if_changed(known))
            self._reading.add_done_callback(self._apply_reading)
        return self._reading

    def _read_if_changed(self, known: Endpoint | None) -> Endpoint:
        """Reads the endpoint in the thread. Returns the known one unread if its files have not changed."""
        if known is not None and known.files and stamps_of(path for path, _ in known.files) == known.files:
            return known
        return self._read()

    def _apply_reading(self, reading: asyncio.Future[Endpoint]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        error, now = reading.exception(), self._now()
        if error is None:
            self._endpoint = reading.result()
            self._renew_at, self._ends_at = self._renewal_times(self._endpoint, now)
        elif isinstance(error, BadCredentials) and self._endpoint is not None:
            self._renew_at = now + self._settings.failed_pause_seconds
            if now < self._ends_at:
                log.warning(
                    "credentials could not be renewed; the former ones are used until they expire", reason=str(error)
                )
        else:
            self._endpoint = None

    def _renewal_times(self, endpoint: Endpoint, now: float) -> tuple[float, float]:
        """Returns the times at which the endpoint is renewed and at which it ends, both in Unix seconds."""
        settings = self._settings
        if endpoint.ends_at is None:
            return (now + settings.look_seconds if endpoint.files else math.inf), math.inf
        ahead = min(settings.ahead_seconds, (endpoint.ends_at - now) / 5)
        # With a wrong clock every credential seems to have ended, but the cluster may still accept it.
        earliest = now + settings.failed_pause_seconds if endpoint.ends_at <= now else now
        return max(endpoint.ends_at - ahead, earliest), max(endpoint.ends_at, earliest)


def run_in_own_thread(function: Callable[[], Endpoint]) -> asyncio.Future[Endpoint]:
    """Runs the function in a new thread and returns its outcome for the running loop.

    The thread does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Endpoint] = loop.create_future()

    def set_outcome(result: Endpoint | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        elif result is not None:
            outcome.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # The loop is closed, so nothing waits any more.
            loop.call_soon_threadsafe(set_outcome, result, error)

    threading.Thread(target=run, name="credentials of a cluster", daemon=True).start()
    return outcome
