"""Projections in Redis that people and tools query. They are never the source of truth; no decision waits for them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Self, TypeVar, cast

from msgspec import Meta
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from spillway import metrics
from spillway.api import RequestError
from spillway.settings import OperatorError, constant, setting

T = TypeVar("T")

MARKER_KEY = "marker"
_BATCH_KEYS = 256
"""The number of keys in one MSET. With 500 kB a value it takes about 20 ms of Redis' only thread."""

# An append that is repeated after a lost answer, or replayed from the log, adds nothing.
_APPEND = """
if redis.call('LINDEX', KEYS[1], 0) ~= ARGV[1] then
  redis.call('LPUSH', KEYS[1], ARGV[1])
end
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PERSIST', KEYS[1])
"""


class StoreUnavailable(RequestError):
    """Raised if the store did not answer in time. It is a RequestError: uncaught, it gives the caller UNAVAILABLE."""

    def __init__(self, text: str) -> None:
        super().__init__("UNAVAILABLE", text)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of the store. The prefix of its variables is SPILLWAY_REDIS_."""

    url: str = setting("redis://127.0.0.1:6379/0", "URL of Redis; rediss:// for TLS", secret=True)
    timeout_seconds: Annotated[float, Meta(gt=0)] = setting(
        2.0, "seconds that one call to Redis may take, connecting included"
    )
    connections_max: int = constant(
        16,
        "number of connections to Redis at the same time",
        "Redis answers in one thread: with more connections no answer comes sooner",
    )


@dataclass(frozen=True, slots=True)
class StoreFound:
    """The state that Redis reports. bytes_max: 0 means no limit. writes: True if it accepts writes.

    filled: True if it has our projections.
    """

    bytes_used: int
    bytes_max: int
    evicted: int
    writes: bool
    filled: bool


class RedisStore:
    """Values and histories by key, under the fleet's own prefix. Every call ends in time or raises StoreUnavailable.

    Opening makes no connection, so a service can start before the store does.
    """

    def __init__(self, settings: StoreSettings, fleet: str) -> None:
        self._settings = settings
        self._prefix = f"spillway:{fleet}:"
        self._places = asyncio.Semaphore(settings.connections_max)
        """A call without a free connection waits for one, in the order of the calls. The pool would refuse it."""

    async def __aenter__(self) -> Self:
        seconds = self._settings.timeout_seconds
        try:
            self._redis = redis.Redis.from_url(
                self._settings.url,
                max_connections=self._settings.connections_max,
                socket_timeout=seconds,
                socket_connect_timeout=seconds,
                retry=Retry(NoBackoff(), 1),  # One retry: a pooled connection may be older than Redis' last start.
            )
        except ValueError:
            # Raise it without the cause, because the cause's text may contain a part of the password.
            expected = "redis://user:password@host:port/number, with special characters of the password as %2F"
            raise OperatorError(f"SPILLWAY_REDIS_URL: (hidden): expected {expected}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        """Writes values. Some may be written before a failure, so the caller writes all of them again."""
        async with self._bounded_call("put_many"):
            pairs = iter(values.items())
            while batch := {self._value_key(key): value for key, value in islice(pairs, _BATCH_KEYS)}:
                await self._redis.mset(cast(Any, batch))

    async def get(self, key: str) -> bytes | None:
        async with self._bounded_call("get"):
            return cast("bytes | None", await self._redis.get(self._value_key(key)))

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Returns the values that exist, in the order of the keys."""
        async with self._bounded_call("get_many"):
            found: list[bytes | None] = []
            for batch in _key_batches(keys):
                found += cast("list[bytes | None]", await self._redis.mget([self._value_key(key) for key in batch]))
        return {key: value for key, value in zip(keys, found, strict=True) if value is not None}

    async def delete(self, *keys: str) -> None:
        """Deletes the values and the histories of these keys."""
        async with self._bounded_call("delete"):
            for batch in _key_batches(keys):
                await self._redis.unlink(*map(self._value_key, batch), *map(self._history_key, batch))

    async def append_histories(self, entries: Sequence[tuple[str, bytes]], keep: int) -> None:
        """Adds blobs to the histories of their keys, in this order, and keeps the newest `keep` of each.

        A blob that is the newest already is not added again. Before a failure, a part of the entries may be added. A
        history for which end_histories set a time is kept after all.
        """
        for blob_by_key in _rounds_of_unique_keys(entries):
            async with self._bounded_call("append_histories"):
                pipeline = self._redis.pipeline(transaction=False)
                for key, blob in blob_by_key.items():
                    pipeline.eval(_APPEND, 1, self._history_key(key), cast(Any, blob), str(keep))
                await pipeline.execute()

    async def end_histories(self, keys: Sequence[str], after_seconds: float) -> None:
        """Deletes the histories of these keys after that time, unless something is added to them meanwhile."""
        async with self._bounded_call("end_histories"):
            for batch in _key_batches(keys):
                pipeline = self._redis.pipeline(transaction=False)
                for key in batch:
                    pipeline.pexpire(self._history_key(key), round(after_seconds * 1000))
                await pipeline.execute()

    async def read_history(self, key: str, limit: int) -> list[bytes]:
        """Returns the newest `limit` entries of a history, newest first."""
        if limit <= 0:
            return []
        async with self._bounded_call("history"):
            return cast("list[bytes]", await _await_reply(self._redis.lrange(self._history_key(key), 0, limit - 1)))

    async def read_marker(self) -> str:
        """Returns the value that set_marker has set last.

        It is empty after a FLUSHALL and in a new Redis. Then the caller must write all projections again.
        """
        async with self._bounded_call("marker"):
            value = cast("bytes | None", await self._redis.get(self._prefix + MARKER_KEY))
        return (value or b"").decode()

    async def set_marker(self, value: str) -> None:
        async with self._bounded_call("set_marker"):
            await self._redis.set(self._prefix + MARKER_KEY, value)

    async def inspect_redis(self) -> StoreFound:
        """Returns the state of Redis, for the check of an installation. Reads only."""
        async with self._bounded_call("inspect"):
            told: Mapping[str, Any] = await self._redis.info("default")
        failing = "err" in (told.get("aof_last_write_status"), told.get("rdb_last_bgsave_status"))
        return StoreFound(
            bytes_used=told.get("used_memory", 0),
            bytes_max=told.get("maxmemory", 0),
            evicted=told.get("evicted_keys", 0),
            writes=told.get("role") == "master" and not failing,
            filled=bool(await self.read_marker()),
        )

    def _value_key(self, key: str) -> str:
        return f"{self._prefix}value:{key}"

    def _history_key(self, key: str) -> str:
        return f"{self._prefix}history:{key}"

    @asynccontextmanager
    async def _bounded_call(self, call: str) -> AsyncIterator[None]:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._settings.timeout_seconds), self._places:
                yield
        except (RedisError, TimeoutError, OSError) as error:
            metrics.STORE_FAILURES.labels(call).inc()
            reason = str(error) or f"no answer within {self._settings.timeout_seconds:g} s"
            raise StoreUnavailable(f"Redis: {call}: {reason}") from error
        finally:
            metrics.STORE_SECONDS.labels(call).observe(time.perf_counter() - started)


class MemoryStore:
    """A store with the methods of RedisStore in this process, for tests and for running without Redis.

    available: if False, every call raises StoreUnavailable. seconds: how long each call takes.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._histories: dict[str, list[bytes]] = {}
        self._ends: dict[str, float] = {}
        self._marker = ""
        self.available = True
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        await self._simulate_call()
        self._values.update(values)

    async def get(self, key: str) -> bytes | None:
        await self._simulate_call()
        return self._values.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        await self._simulate_call()
        return {key: self._values[key] for key in keys if key in self._values}

    async def delete(self, *keys: str) -> None:
        await self._simulate_call()
        for key in keys:
            self._values.pop(key, None)
            self._histories.pop(key, None)
            self._ends.pop(key, None)

    async def append_histories(self, entries: Sequence[tuple[str, bytes]], keep: int) -> None:
        await self._simulate_call()
        self._delete_ended_histories()
        for key, blob in entries:
            self._ends.pop(key, None)
            history = self._histories.setdefault(key, [])
            if history[:1] != [blob]:
                history.insert(0, blob)
            del history[keep:]

    async def end_histories(self, keys: Sequence[str], after_seconds: float) -> None:
        await self._simulate_call()
        ends_at = asyncio.get_running_loop().time() + after_seconds
        self._ends |= {key: ends_at for key in keys if key in self._histories}

    def _delete_ended_histories(self) -> None:
        now = asyncio.get_running_loop().time()
        for key in [key for key, ends_at in self._ends.items() if ends_at <= now]:
            del self._ends[key], self._histories[key]

    async def read_history(self, key: str, limit: int) -> list[bytes]:
        await self._simulate_call()
        self._delete_ended_histories()
        return self._histories.get(key, [])[: max(0, limit)]

    async def read_marker(self) -> str:
        await self._simulate_call()
        return self._marker

    async def set_marker(self, value: str) -> None:
        await self._simulate_call()
        self._marker = value

    def flush_all(self) -> None:
        """Deletes everything, as FLUSHALL does in Redis."""
        self._values.clear()
        self._histories.clear()
        self._ends.clear()
        self._marker = ""

    async def _simulate_call(self) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if not self.available:
            raise StoreUnavailable("the store was told to be away")


Store = RedisStore | MemoryStore


def _key_batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + _BATCH_KEYS] for start in range(0, len(keys), _BATCH_KEYS))


def _rounds_of_unique_keys(entries: Sequence[tuple[str, bytes]]) -> Iterator[Mapping[str, bytes]]:
    """Yields the entries in rounds, in their order. A round has each key once, so it can be sent twice safely."""
    found: dict[str, bytes] = {}
    for key, blob in entries:
        if key in found or len(found) == _BATCH_KEYS:
            yield found
            found = {}
        found[key] = blob
    if found:
        yield found


async def _await_reply(reply: Awaitable[T] | T) -> T:
    """Awaits a reply of redis-py. Its type also allows a value in place of an awaitable.

    redis-py has one type for its two clients. The asyncio client always returns an awaitable.
    """
    return await cast("Awaitable[T]", reply)
