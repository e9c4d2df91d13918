"""When a cluster's credentials are read, by whom, and what happens to those who wait while a disk or a plugin hangs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spillway.clusters.credentials import BadCredentials, Credentials, Endpoint
from spillway.clusters.endpoint import stamps_of
from spillway.clusters.settings import RenewalSettings

SETTINGS = RenewalSettings(ahead_seconds=60.0, look_seconds=60.0, failed_pause_seconds=10.0)
WAIT_SECONDS = 20.0
NOW = 1_000_000.0


@dataclass
class Readings:
    """What each reading gives, in this order, and the last for ever. One waits while `gate` is closed."""

    outcomes: list[Endpoint | Exception]
    now: float = NOW
    read: int = 0
    ended: int = 0
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def __call__(self) -> Endpoint:
        self.read += 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.gate.wait(WAIT_SECONDS)
        self.ended += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def credentials(self, settings: RenewalSettings = SETTINGS) -> Credentials:
        return Credentials(self, settings, now=lambda: self.now)


@pytest.fixture
def hanging() -> Iterator[Readings]:
    readings = Readings([Endpoint("https://a", token="t")])
    readings.gate.clear()
    yield readings
    readings.gate.set()


def endpoint_with_token(name: str, ends_at: float | None = None) -> Endpoint:
    return Endpoint("https://a", token=name, ends_at=ends_at)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


async def test_all_who_ask_wait_for_one_reading(hanging: Readings) -> None:
    credentials = hanging.credentials()
    asking = [asyncio.create_task(credentials.current_endpoint()) for _ in range(50)]
    await wait_until(lambda: hanging.read > 0)
    hanging.gate.set()
    assert {(await one).token for one in asking} == {"t"}
    assert (await credentials.current_endpoint()).token == "t"
    assert hanging.read == 1


async def test_one_failure_is_told_to_all_who_wait() -> None:
    readings = Readings([BadCredentials("no"), endpoint_with_token("t")])
    readings.gate.clear()
    credentials = readings.credentials()
    asking = [asyncio.create_task(credentials.current_endpoint()) for _ in range(5)]
    await wait_until(lambda: readings.read > 0)
    readings.gate.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(one) for one in outcomes] == ["no"] * 5
    assert (await credentials.current_endpoint()).token == "t", "who asks later has it read again"


async def test_who_stops_waiting_ends_no_reading_and_begins_none(hanging: Readings) -> None:
    credentials = hanging.credentials()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await credentials.current_endpoint()
    assert hanging.read == 1
    hanging.gate.set()
    assert (await credentials.current_endpoint()).token == "t"
    assert hanging.read == 1


async def test_readings_that_hang_leave_the_threads_that_all_use_free(hanging: Readings) -> None:
    """They filled the event loop's pool once: nothing else that needs a thread went on."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    clusters = [hanging.credentials() for _ in range(20)]
    asking = [asyncio.create_task(one.current_endpoint()) for one in clusters]
    await wait_until(lambda: hanging.read == 20)
    async with asyncio.timeout(WAIT_SECONDS / 2):
        assert await asyncio.to_thread(lambda: "free") == "free"
    hanging.gate.set()
    assert len(await asyncio.gather(*asking)) == 20


async def test_a_reading_that_takes_too_long_is_named_and_used_once_it_ends(hanging: Readings) -> None:
    credentials = hanging.credentials(RenewalSettings(reading_seconds=0.05))
    for _ in range(2):
        with pytest.raises(BadCredentials, match=r"expected to be read within 0\.05 s, and it still is not"):
            await credentials.current_endpoint()
    assert hanging.read == 1
    hanging.gate.set()
    await wait_until(lambda: hanging.ended == 1)
    await asyncio.sleep(0.05)
    assert (await credentials.current_endpoint()).token == "t"
    assert hanging.read == 1


async def test_what_was_refused_is_read_again_once_however_many_find_it() -> None:
    readings = Readings([endpoint_with_token("old"), endpoint_with_token("new")])
    credentials = readings.credentials()
    old = await credentials.current_endpoint()
    for _ in range(3):
        credentials.discard_endpoint(old)
        assert (await credentials.current_endpoint()).token == "new"
    assert readings.read == 2


LIFE: dict[str, tuple[float, float, float]] = {
    "an hour": (3600, 3540, 3600),
    "a minute": (60, 48, 60),
    "ended already, by our clock": (-5, 10, 10),
}
"""How long credentials are good when they are read; when they are renewed, and when requests wait for that; seconds."""


@pytest.mark.parametrize(("life", "renewed", "awaited"), LIFE.values(), ids=LIFE)
async def test_credentials_are_renewed_before_they_end(life: float, renewed: float, awaited: float) -> None:
    readings = Readings([endpoint_with_token("old", NOW + life), endpoint_with_token("new", NOW + 2 * 3600)])
    credentials = readings.credentials()
    await credentials.current_endpoint()
    readings.now = NOW + renewed - 1
    assert (await credentials.current_endpoint()).token == "old"
    assert readings.read == 1
    readings.gate.clear()
    readings.now = NOW + renewed
    if renewed < awaited:
        assert (await credentials.current_endpoint()).token == "old", "nobody waits while they are good"
        readings.now = NOW + awaited - 1
        assert (await credentials.current_endpoint()).token == "old"
    readings.now = NOW + awaited
    waiting = asyncio.create_task(credentials.current_endpoint())
    await wait_until(lambda: readings.read == 2)
    assert not waiting.done()
    readings.gate.set()
    assert (await waiting).token == "new"
    assert readings.read == 2


async def test_a_renewal_that_fails_leaves_the_old_ones_until_their_end() -> None:
    readings = Readings(
        [endpoint_with_token("old", NOW + 3600), BadCredentials("one"), BadCredentials("two"), BadCredentials("end")]
    )
    credentials = readings.credentials()
    await credentials.current_endpoint()
    for later, read in ((3540, 2), (3549, 2), (3550, 3)):
        readings.now = NOW + later
        assert (await credentials.current_endpoint()).token == "old"
        await wait_until(lambda expected=read: readings.ended == expected)  # type: ignore[misc]
        await asyncio.sleep(0.05)
        assert (await credentials.current_endpoint()).token == "old"
        assert readings.read == read
    readings.now = NOW + 3600
    with pytest.raises(BadCredentials, match="end"):
        await credentials.current_endpoint()


async def test_our_bug_in_a_renewal_is_told_to_the_next_request() -> None:
    readings = Readings([endpoint_with_token("old", NOW + 3600), RuntimeError("a bug")])
    credentials = readings.credentials()
    await credentials.current_endpoint()
    readings.now = NOW + 3540
    await credentials.current_endpoint()
    await wait_until(lambda: readings.ended == 2)
    await asyncio.sleep(0.05)
    with pytest.raises(RuntimeError, match="a bug"):
        await credentials.current_endpoint()


async def test_files_are_read_again_when_they_change_and_not_otherwise(tmp_path: Path) -> None:
    """Also when another file comes into their place, as Kubernetes renews what it mounts."""
    file = tmp_path / "token"
    file.write_text("one")
    readings = Readings([endpoint_with_token("never")])

    def read() -> Endpoint:
        stamps = stamps_of([file])
        readings()
        return Endpoint("https://a", token=file.read_text(), files=stamps)

    credentials = Credentials(read, SETTINGS, now=lambda: readings.now)
    assert (await credentials.current_endpoint()).token == "one"
    await look_at_files(credentials, readings)
    assert ((await credentials.current_endpoint()).token, readings.read) == ("one", 1)
    (tmp_path / "next").write_text("two")
    (tmp_path / "next").replace(file)
    assert (await credentials.current_endpoint()).token == "one", "it is looked at only so often"
    await look_at_files(credentials, readings)
    assert ((await credentials.current_endpoint()).token, readings.read) == ("two", 2)
    file.write_text("three")
    await look_at_files(credentials, readings)
    assert ((await credentials.current_endpoint()).token, readings.read) == ("three", 3)


async def look_at_files(credentials: Credentials, readings: Readings) -> None:
    """Time passes until files are looked at, and a request has that done."""
    readings.now += SETTINGS.look_seconds
    await credentials.current_endpoint()
    await asyncio.sleep(0.1)


async def test_the_loop_may_end_while_a_reading_hangs(hanging: Readings) -> None:
    """Its thread finds nobody who waits, and ends."""

    def run_and_end() -> None:
        async def ask() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await hanging.credentials().current_endpoint()

        asyncio.run(ask())

    before = set(threading.enumerate())
    await asyncio.to_thread(run_and_end)
    hanging.gate.set()
    await wait_until(lambda: not [one for one in set(threading.enumerate()) - before if "credentials" in one.name])
