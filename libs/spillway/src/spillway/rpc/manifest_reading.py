"""Reads the manifests of a request once, in a thread and in turn for each caller, before anything else reads them.

YAML of a few megabytes takes seconds to read, and its thread holds the interpreter for most of that time. So sizes are
checked before anything is read, values are counted while it is read, and one request of each caller is read at a time.
The result is passed on as JSON (kubernetes/manifest_text.py, ReadManifest), or in the form that the service makes.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from spillway import metrics
from spillway.api import PlanBatchRequest, RequestError
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX, check_size, read_manifest_once
from spillway.kubernetes.pod_security import ANY
from spillway.reasons import TOO_MANY_RUN
from spillway.rpc.callers import Caller
from spillway.rpc.holder_places import HolderCounts, HolderPlaces
from spillway.rpc.manifest_fields import manifests_of, with_replaced_manifests
from spillway.rpc.namespaces import check_namespaces
from spillway.rpc.pods import check_pods, has_pod_limits
from spillway.yaml_text import ValueBudget

READ_AT_ONCE_CHARACTERS: Final = 16_384
"""The most characters of all manifests of a request that are read on the event loop. Longer ones are read in a
thread."""
READ_AT_ONCE_VALUES: Final = 2_000
"""The most values that these manifests may hold, by a count of the characters that separate values. Without this bound,
16 kB of empty values took 60 ms of the event loop. Published manifests of that length have 1,200 and take 5 ms."""
SEPARATORS: Final = "\n,[{:-?"
"""A value of a YAML or JSON text has one of these characters before it, or is a key whose `:` follows."""
READ_IN_TURN_CHARACTERS: Final = 2_048
"""The most characters of all manifests of a request that is read without waiting. Of longer requests, one of each
caller is read in an iteration of the event loop. So many requests of one caller leave time for other callers."""
THREADS: Final = 2
"""The number of threads. With two, one caller's long request leaves a thread for another caller. More would wait for
the interpreter."""
Prepare = Callable[[Any], Any]
"""A function that converts a checked request with long manifests to one with the parsed declarations. It is called in a
thread and raises nothing. The service itself reports faults in the manifests."""


def unchanged_request(request: Any) -> Any:
    """Returns the request unchanged, for services without a step for long manifests."""
    return request


class ManifestReading:
    """Reads and checks the manifests of requests.

    values_max: the most values of all manifests in one request.
    waiting_max: how many long requests of one caller may be under way, including the one that is being read.
    pod_security: the level that the pods of every caller must meet. prepare: the service's work on a long request.
    """

    def __init__(
        self, values_max: int, waiting_max: int, pod_security: str = ANY, prepare: Prepare = unchanged_request
    ) -> None:
        self._values_max = values_max
        self._waiting_max = waiting_max
        self._pod_security = pod_security
        self._prepare = prepare
        self._threads = ThreadPoolExecutor(THREADS, "manifests")
        self._long_turns, self._short_turns = HolderPlaces(1), HolderPlaces(1)
        self._asking = HolderCounts[str]()
        """By caller, the number of long requests that are being read or wait for it."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def checked_request(self, caller: Caller, verb: str, request: Any) -> Any:
        """Returns the request with its long manifests parsed. Raises RequestError if the caller may not make it."""
        texts = manifests_of(request)
        if not isinstance(request, PlanBatchRequest):  # In a batch each item is refused on its own.
            for where, text in texts:
                check_size(text, where)
        characters = sum(len(text) for _, text in texts)
        if characters <= READ_AT_ONCE_CHARACTERS and values_at_most(texts) <= READ_AT_ONCE_VALUES:
            return await self._read_short(caller, verb, request, characters)
        asking = self._asking.count_of(caller.name)
        if asking >= self._waiting_max:
            metrics.REQUESTS_DENIED.labels("manifests").inc()
            text = f"{verb}: {asking} long requests of caller {caller.name!r} are being read: try again"
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_RUN)
        with self._asking.counted(caller.name):
            async with self._long_turns.semaphore_of(caller.name):
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._read_long, caller, verb, request
                )

    async def _read_short(self, caller: Caller, verb: str, request: Any, characters: int) -> Any:
        if not (caller.is_restricted or has_pod_limits(caller, self._pod_security)):
            return request
        if characters <= READ_IN_TURN_CHARACTERS:
            return self._read_and_check(caller, verb, request)
        async with self._short_turns.semaphore_of(caller.name):
            await asyncio.sleep(0)
            return self._read_and_check(caller, verb, request)

    def _read_long(self, caller: Caller, verb: str, request: Any) -> Any:
        return self._prepare(self._read_and_check(caller, verb, request))

    def _read_and_check(self, caller: Caller, verb: str, request: Any) -> Any:
        budget = ValueBudget(self._values_max)

        def read_manifest(text: str) -> str:
            return text if len(text) > MANIFEST_BYTES_MAX else read_manifest_once(text, budget)

        if manifests_of(request):
            request = with_replaced_manifests(request, read_manifest)
        check_namespaces(caller, verb, request)
        check_pods(caller, verb, request, self._pod_security)
        return request


def values_at_most(texts: Iterable[tuple[str, str]]) -> int:
    """Returns how many values all texts can have, from their separators. texts: as returned by manifests_of()."""
    return sum(1 + sum(map(text.count, SEPARATORS)) for _, text in texts)
