"""What every store promises, asked of the one in memory and of a real Redis."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis import asyncio as redis

from spillway.settings import OperatorError
from spillway.store import MemoryStore, RedisStore, Store, StoreSettings, StoreUnavailable

Flush = Callable[[], Awaitable[None]]
PATIENCE_SECONDS = 60


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Flush]]:
    """A store with nothing in it, and how to make it lose everything."""
    if request.param == "memory":
        memory = MemoryStore()

        async def flush_memory() -> None:
            memory.flush_all()

        yield memory, flush_memory
        return
    url: str = request.getfixturevalue("redis_url")

    fleet = uuid.uuid4().hex

    async def flush_redis() -> None:  # Of this fleet only, since others may use the same server.
        async with redis.Redis.from_url(url) as client:
            await client.delete(*[key async for key in client.scan_iter(f"*{fleet}*")])

    async with RedisStore(StoreSettings(url=url), fleet) as store:
        yield store, flush_redis


@pytest.fixture
def store(opened: tuple[Store, Flush]) -> Store:
    return opened[0]


async def test_what_is_put_is_got(store: Store) -> None:
    await store.put_many({"a": b"1", "b/c d": b"\x00\xff", "empty": b""})
    assert await store.get("a") == b"1"
    assert await store.get("absent") is None
    assert await store.get_many(["b/c d", "absent", "a", "empty"]) == {"b/c d": b"\x00\xff", "a": b"1", "empty": b""}
    await store.put_many({"a": b"2"})
    assert await store.get("a") == b"2"


async def test_nothing_is_also_a_number_of_keys(store: Store) -> None:
    await store.put_many({})
    await store.delete()
    assert await store.get_many([]) == {}


async def test_histories_of_more_keys_than_go_in_one_round(store: Store) -> None:
    keys = [f"k{index}" for index in range(600)]
    await store.append_histories([(key, blob) for blob in (b"1", b"2") for key in keys], keep=9)
    assert [await store.read_history(key, 9) for key in keys[::100]] == [[b"2", b"1"]] * 6
    await store.append_histories([], keep=9)


async def test_many_and_large_values(store: Store) -> None:
    values = {f"k{index}": b"v%d" % index for index in range(1000)} | {"large": b"x" * 2_000_000}
    await store.put_many(values)
    assert await store.get_many(list(values)) == values
    await store.delete(*values)
    assert await store.get_many(list(values)) == {}


async def test_history_keeps_the_newest_first(store: Store) -> None:
    await store.append_histories([("w", b"%d" % number) for number in range(5)], keep=3)
    assert await store.read_history("w", 10) == [b"4", b"3", b"2"]
    assert await store.read_history("w", 2) == [b"4", b"3"]
    assert await store.read_history("w", 0) == []
    assert await store.read_history("absent", 5) == []


async def test_the_newest_is_not_appended_again(store: Store) -> None:
    await store.append_histories([("w", blob) for blob in (b"a", b"a", b"b")], keep=9)
    await store.append_histories([("w", b"b"), ("v", b"b"), ("w", b"a")], keep=9)
    assert (await store.read_history("w", 9), await store.read_history("v", 9)) == ([b"a", b"b", b"a"], [b"b"])


async def test_a_smaller_keep_cuts(store: Store) -> None:
    await store.append_histories([("w", b"%d" % number) for number in range(5)], keep=5)
    await store.append_histories([("w", b"4")], keep=1)
    assert await store.read_history("w", 9) == [b"4"]


async def test_delete_forgets_value_and_history_of_that_key_only(store: Store) -> None:
    await store.put_many({"w": b"1", "v": b"2"})
    await store.append_histories([("w", b"x"), ("v", b"y")], keep=2)
    await store.delete("w", "absent")
    assert (await store.get("w"), await store.read_history("w", 2)) == (None, [])
    assert (await store.get("v"), await store.read_history("v", 2)) == (b"2", [b"y"])


async def test_a_history_ends_after_its_time_unless_something_is_added(store: Store) -> None:
    await store.append_histories([("w", b"x"), ("v", b"y"), ("u", b"z")], keep=2)
    await store.put_many({"w": b"1"})
    await store.end_histories(["w", "v", "absent"], 0.05)
    await store.end_histories([], 0.05)
    await store.append_histories([("v", b"y")], keep=2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await store.read_history("w", 2):
            await asyncio.sleep(0.01)
    assert [await store.read_history(key, 2) for key in ("absent", "v", "u")] == [[], [b"y"], [b"z"]]
    assert await store.get("w") == b"1"
    await store.append_histories([("w", b"new")], keep=2)
    assert await store.read_history("w", 2) == [b"new"]


async def test_the_marker_is_gone_after_a_flush(opened: tuple[Store, Flush]) -> None:
    store, flush = opened
    assert await store.read_marker() == ""
    await store.set_marker("projected-1")
    await store.put_many({"marker": b"a key of that name is another thing"})
    assert await store.read_marker() == "projected-1"
    await flush()
    assert await store.read_marker() == ""
    assert await store.get("marker") is None


@pytest.mark.redis
async def test_fleets_in_one_redis_do_not_meet(redis_url: str) -> None:
    settings = StoreSettings(url=redis_url)
    async with RedisStore(settings, "north") as north, RedisStore(settings, "south") as south:
        await north.put_many({"a": b"1"})
        await north.set_marker("m")
        assert await south.get("a") is None
        assert await south.read_marker() == ""


@pytest.mark.redis
async def test_more_calls_than_connections_wait_and_none_is_refused(redis_url: str) -> None:
    async with RedisStore(StoreSettings(url=redis_url, connections_max=2), "many") as store:
        await store.put_many({"a": b"1"})
        assert await asyncio.gather(*(store.get("a") for _ in range(100))) == [b"1"] * 100


@pytest.mark.redis
async def test_a_connection_that_redis_closed_is_made_again(redis_url: str) -> None:
    async with RedisStore(StoreSettings(url=redis_url), "again") as store, redis.Redis.from_url(redis_url) as other:
        await store.put_many({"a": b"1"})
        await other.client_kill_filter(_type="normal", skipme=True)
        assert await store.get("a") == b"1"


async def test_nobody_there_is_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        settings = StoreSettings(url=f"redis://127.0.0.1:{probe.getsockname()[1]}/0", timeout_seconds=0.5)
        async with RedisStore(settings, "f") as store:
            with pytest.raises(StoreUnavailable, match="Redis: get: "):
                await store.get("a")


async def test_a_redis_that_does_not_answer_is_unavailable_in_time() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = StoreSettings(url=f"redis://127.0.0.1:{port}/0", timeout_seconds=0.2)
    async with server, RedisStore(settings, "f") as store:
        for call in (store.put_many({"a": b"1"}), store.read_history("a", 1), store.read_marker()):
            with pytest.raises(StoreUnavailable):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await call


async def test_memory_can_be_away_too() -> None:
    store = MemoryStore()
    store.available = False
    with pytest.raises(StoreUnavailable):
        await store.get("a")


async def test_a_url_that_is_none_is_the_operators_to_change() -> None:
    with pytest.raises(OperatorError, match="SPILLWAY_REDIS_URL"):
        async with RedisStore(StoreSettings(url="http://x"), "f"):
            pass
