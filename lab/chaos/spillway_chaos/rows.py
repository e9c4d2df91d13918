"""The faults, row by row. Each breaks one part, restores it, and returns once that part serves again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from spillway.kafka.bus import KafkaSettings
from spillway_local.kafka_server import KafkaServer

from .clock import SERVICES as WITH_CLOCKS
from .clock import clock_offset_seconds, set_clock
from .ground import KINDS, LENDING_KINDS, Ground, wait_for_broker, wait_until
from .wiping import wipe_log

OUTAGE_SECONDS = 60.0
SETTINGS = KafkaSettings("")
"""The services' default settings. Nothing here changes them."""
SESSION_SECONDS = {
    "planner": SETTINGS.session_seconds,
    "snapshot": SETTINGS.cluster_session_seconds,
    "propagator": SETTINGS.cluster_session_seconds,
    "hpa": SETTINGS.session_seconds,
    "descheduler": SETTINGS.session_seconds,
    "vk-bridge": SETTINGS.cluster_session_seconds,
}
"""Seconds after which another instance takes over, by service."""
_LONGEST_WAIT = SETTINGS.cluster_session_seconds + SETTINGS.request_seconds
"""Seconds of the longest request to a broker, which is to join a consumer group of clusters."""
BROKER_FROZEN = (
    (0.3, SETTINGS.session_seconds - 1),
    (SETTINGS.session_seconds + 0.5, SETTINGS.cluster_session_seconds - 0.5),
    (SETTINGS.cluster_session_seconds + 0.5, _LONGEST_WAIT - 3),
    (_LONGEST_WAIT - 3, _LONGEST_WAIT + 15),
)
"""Seconds: shorter than all sessions, longer than the planner's, longer than all, longer than all request waits."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The effect of a fault. times: number of equal parts that one round breaks."""

    what: str
    times: int = 1


Fault = Callable[[Ground, Random], Awaitable[Broken]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of faults. stack: the kind of platform it needs. think_seconds: a lane's pause between requests.

    before_seconds: time under load before the fault.
    """

    name: str
    stack: str
    what: str
    fault: Fault
    think_seconds: tuple[float, float] = (0.05, 0.5)
    before_seconds: tuple[float, float] = (0.2, 2.0)

    @property
    def pulse_seconds(self) -> float:
        """Seconds between two calls of the measuring client. The log keeps each call, so a row with a small log asks
        less."""
        return 0.2 if self.name.startswith(("planner", "service", "kafka", "broker", "disk")) else 1.0


async def _choose_victim(ground: Ground, kind: str, random: Random) -> str:
    """Returns the instance with the turn, or a bridge that holds clusters. Of snapshot and propagator any instance."""
    if kind in ("planner", "hpa", "descheduler"):
        return await ground.find_active_instance(kind)
    return (
        random.choice(await ground.instances_with_turns(kind))
        if kind == "vk-bridge"
        else f"{kind}-{random.randint(1, 2)}"
    )


async def _freeze_program(ground: Ground, name: str, seconds: float) -> None:
    ground.send_signal(name, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        ground.send_signal(name, signal.SIGCONT)


def make_kill_fault(kind: str) -> Fault:
    async def kill_instance(ground: Ground, random: Random) -> Broken:
        name = await _choose_victim(ground, kind, random)
        before = ground.send_signal(name, signal.SIGKILL)
        await ground.wait_for_restart(name, before)
        await ground.wait_until_ready(name)
        return Broken(f"{name} killed")

    return kill_instance


def make_freeze_fault(kind: str, shortest: float, longest: float) -> Fault:
    async def freeze_instance(ground: Ground, random: Random) -> Broken:
        name, seconds = await _choose_victim(ground, kind, random), random.uniform(shortest, longest)
        await _freeze_program(ground, name, seconds)
        await ground.wait_until_ready(name)
        return Broken(f"{name} frozen for {seconds:.1f} s")

    return freeze_instance


def make_kill_with_successor_fault(kind: str) -> Fault:
    """Kills the instance with the turn, and the other one about when it takes the turn, so that both are gone."""

    async def kill_both_instances(ground: Ground, random: Random) -> Broken:
        first = await ground.find_active_instance(kind)
        (second,) = {f"{kind}-1", f"{kind}-2"} - {first}
        session = SESSION_SECONDS[kind]
        before = ground.send_signal(first, signal.SIGKILL)
        seconds = random.uniform(session - 1, session + 3)
        await asyncio.sleep(seconds)
        before_second = ground.send_signal(second, signal.SIGKILL)
        await ground.wait_for_restart(first, before)
        await ground.wait_for_restart(second, before_second)
        await ground.wait_until_ready(first, second)
        return Broken(f"{first} killed, {second} {seconds:.1f} s later")

    return kill_both_instances


async def roll_service(ground: Ground, random: Random) -> Broken:
    """Restarts one instance after the other with SIGTERM, as the rollout of a new version does."""
    kind = random.choice(KINDS)
    names = random.sample((f"{kind}-1", f"{kind}-2"), 2)
    for name in names:
        await _restart_program(ground, name)
        await ground.wait_until_ready(name)
    return Broken(f"{' and then '.join(names)} restarted", len(names))


async def _restart_program(ground: Ground, name: str) -> None:
    await asyncio.to_thread(ground.stack.supervision.stop_program, name)
    await asyncio.to_thread(ground.stack.supervision.start_program, name)


async def kill_kafka(ground: Ground, random: Random) -> Broken:
    broker = random.choice(ground.stack.brokers())
    await _kill_broker(ground, broker)
    await wait_for_broker(broker)
    return Broken(f"{broker.name} killed")


async def kill_kafka_twice(ground: Ground, random: Random) -> Broken:
    """Kills Kafka twice: the second time while it starts and reads its log, or just after, with open transactions."""
    broker = random.choice(ground.stack.brokers())
    await _kill_broker(ground, broker)
    starts, seconds = random.random() < 0.5, random.uniform(0.0, 5.0)
    if not starts:
        await wait_for_broker(broker)
    await asyncio.sleep(seconds)
    await _kill_broker(ground, broker)
    await wait_for_broker(broker)
    return Broken(f"{broker.name} killed, and {seconds:.1f} s after it {'was started' if starts else 'listened'}")


async def roll_brokers(ground: Ground, random: Random) -> Broken:
    """Restarts each broker in order, as an upgrade does. Waits until no partition lacks a replica before the next."""
    brokers = random.sample(ground.stack.brokers(), len(ground.stack.brokers()))
    for broker in brokers:
        await _restart_program(ground, broker.name)
        await wait_for_broker(broker)
        await wait_until("every copy is in sync", ground.is_kafka_in_sync)
    return Broken(f"{', '.join(broker.name for broker in brokers)} restarted", len(brokers))


async def _kill_broker(ground: Ground, broker: KafkaServer) -> None:
    before = ground.send_signal(broker.name, signal.SIGKILL)
    await ground.wait_for_restart(broker.name, before)


async def freeze_kafka(ground: Ground, random: Random) -> Broken:
    """Freezes a broker: the controller, the one that leads most partitions, or any, equally often."""
    controller, led = await ground.broker_roles()
    names = sorted(led)
    name = random.choice((controller, max(names, key=lambda name: led[name]), random.choice(names)))
    seconds = random.uniform(*random.choice(BROKER_FROZEN))
    await _freeze_program(ground, name, seconds)
    role = f"{'the controller, ' if name == controller else ''}leads {led[name]} of {led.total()} partitions"
    return Broken(f"{name} ({role}) frozen for {seconds:.1f} s")


async def kill_redis(ground: Ground, _: Random) -> Broken:
    before = ground.send_signal("redis", signal.SIGKILL)
    await ground.wait_for_restart("redis", before)
    return Broken("redis killed")


async def flush_redis(ground: Ground, _: Random) -> Broken:
    await ground.send_redis_command("FLUSHALL")
    return Broken("redis flushed")


async def stop_apis(ground: Ground, random: Random) -> Broken:
    """Stops the APIs of all members but one at different moments: frozen, so silent, or ended, so gone."""
    names = random.sample(sorted(ground.proxies), len(ground.proxies) - 1)
    ways = {name: random.choice(("frozen", "ended")) for name in names}
    await asyncio.gather(*(_stop_api(ground, name, way, random.uniform(0, 5)) for name, way in ways.items()))
    told = ", ".join(f"{name} {way}" for name, way in ways.items())
    return Broken(f"for {OUTAGE_SECONDS:.0f} s: {told}", len(names))


async def _stop_api(ground: Ground, name: str, way: str, after_seconds: float) -> None:
    await asyncio.sleep(after_seconds)
    program = f"{name}-apiserver"
    if way == "frozen":
        await _freeze_program(ground, program, OUTAGE_SECONDS)
    else:
        await asyncio.to_thread(ground.stack.supervision.stop_program, program)
        try:
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            await asyncio.to_thread(ground.stack.supervision.start_program, program)


async def revoke_token(ground: Ground, random: Random) -> Broken:
    """Revokes the token at half of the members: new requests get 401. At some, running watches end too."""
    names = random.sample(sorted(ground.proxies), len(ground.proxies) // 2)
    ended = [name for name in names if random.random() < 0.5]
    for name in names:
        ground.proxies[name].unauthorized = True
        if name in ended:
            ground.proxies[name].end_watches()
    seconds = random.uniform(3.0, 12.0)
    try:
        await asyncio.sleep(seconds)
    finally:
        for name in names:
            ground.proxies[name].unauthorized = False
    return Broken(f"token revoked for {seconds:.1f} s in {', '.join(names)}; watches ended in {ended}", len(names))


async def cut_lists(ground: Ground, random: Random) -> Broken:
    """Makes half of the members list again and return only the beginning of each list."""
    names = random.sample(sorted(ground.proxies), len(ground.proxies) // 2)
    kinds = random.sample(("nodes", "pods", "deployments", "replicasets"), random.randint(1, 4))
    shown = {kind: random.choice((0.0, 0.3, 0.5, 0.8)) for kind in kinds}
    seconds = random.uniform(2.0, 15.0)
    for name in names:
        ground.proxies[name].shown = shown
        ground.proxies[name].end_watches(expired=True)
    try:
        await asyncio.sleep(seconds)
    finally:
        for name in names:
            ground.proxies[name].shown = {}
            ground.proxies[name].end_watches(expired=True)
    return Broken(f"lists cut to {shown} for {seconds:.1f} s in {', '.join(names)}", len(names))


async def fill_disk(ground: Ground, random: Random) -> Broken:
    """Fills all free bytes of Kafka's disk. Later frees them and starts Kafka again."""
    ballast = ground.stack.folder / "kafka" / "ballast"
    seconds = random.uniform(3.0, 8.0)
    await asyncio.to_thread(_fill_disk_with_file, ballast)
    try:
        await asyncio.sleep(seconds)
    finally:
        ballast.unlink()
    await ground.ensure_running("kafka")
    await wait_for_broker(ground.stack.brokers()[0])
    return Broken(f"disk full for {seconds:.1f} s")


async def wipe_kafka(ground: Ground, random: Random) -> Broken:
    return Broken(await wipe_log(ground, random))


def _fill_disk_with_file(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1 << 12))


async def jump_clock(ground: Ground, random: Random) -> Broken:
    """Moves the clock of one service by an hour forward or back, and later to the right time, which is also a jump."""
    service, ahead = random.choice(WITH_CLOCKS), random.choice((3600, -3600))
    seconds = random.uniform(2.0, 6.0)

    async def is_clock_as_set() -> bool:
        return abs(await asyncio.to_thread(clock_offset_seconds, ground.health_url(service, "healthz")) - ahead) < 60

    set_clock(ground.stack.folder, service, ahead)
    try:
        await wait_until(f"the clock of {service} jumped", is_clock_as_set)
        await asyncio.sleep(seconds)
    finally:
        set_clock(ground.stack.folder, service, 0)
        ahead = 0
    await wait_until(f"the clock of {service} is right", is_clock_as_set)
    await ground.wait_until_ready(service)
    return Broken(f"the clock of {service} an hour off for {seconds:.1f} s")


BURST, SLOW = (0.0, 0.02), (0.5, 2.0)
SHORT, LONGER = (0.3, 3.0), (2.0, 4.0)
A_CYCLE = (0.2, 25.0)
"""Seconds. Range of one cycle in which nodes are recalled, return and are lent again. Faults hit each part of it."""

ROWS = (
    *(Row(f"{kind}-killed", "sim", f"kill -9 of a {kind}", make_kill_fault(kind)) for kind in KINDS),
    *(
        Row(
            f"{kind}-frozen",
            "sim",
            f"SIGSTOP of a {kind} past its session, SIGCONT",
            make_freeze_fault(kind, *(SESSION_SECONDS[kind] + more for more in LONGER)),
        )
        for kind in KINDS
    ),
    *(
        Row(
            f"{kind}-hiccup", "sim", f"SIGSTOP of a {kind} within its session, SIGCONT", make_freeze_fault(kind, *SHORT)
        )
        for kind in KINDS
    ),
    *(
        Row(
            f"{kind}-killed-with-successor",
            "sim",
            f"kill -9 of a {kind}, and of the other as it takes over",
            make_kill_with_successor_fault(kind),
        )
        for kind in ("planner", "hpa")
    ),
    Row("service-rolled", "sim", "both instances of a service restarted in order, one after the other", roll_service),
    Row("kafka-killed", "sim", "kill -9 of the only broker, restarted", kill_kafka),
    Row("kafka-killed-twice", "sim", "kill -9 of the only broker, and again as it comes back", kill_kafka_twice),
    Row("kafka-frozen", "sim", "SIGSTOP of the only broker for 0.3 to 35 s, SIGCONT", freeze_kafka),
    Row("redis-killed", "sim", "kill -9 of Redis, restarted", kill_redis),
    Row("redis-flushed", "sim", "FLUSHALL", flush_redis),
    *(
        Row(
            f"{kind}-killed",
            "lending",
            f"kill -9 of a {kind} while nodes are lent and needed back",
            make_kill_fault(kind),
            SLOW,
            A_CYCLE,
        )
        for kind in LENDING_KINDS
    ),
    *(
        Row(
            f"{kind}-frozen",
            "lending",
            f"SIGSTOP of a {kind} past its session, SIGCONT",
            make_freeze_fault(kind, *(SESSION_SECONDS[kind] + more for more in LONGER)),
            SLOW,
            A_CYCLE,
        )
        for kind in LENDING_KINDS
    ),
    Row("broker-of-three-killed", "brokers", "kill -9 of one of three brokers in a burst", kill_kafka, BURST),
    Row("broker-of-three-killed-twice", "brokers", "the same, and again as it comes back", kill_kafka_twice, BURST),
    Row("brokers-rolled", "brokers", "three brokers restarted in order, one after another", roll_brokers),
    Row("broker-of-three-frozen", "brokers", "SIGSTOP of one of three in a burst, SIGCONT", freeze_kafka, BURST),
    Row("apiserver-stopped", "kube", "an apiserver frozen or ended for a minute", stop_apis, SLOW),
    Row("token-revoked", "kube", "401 from an apiserver, for seconds", revoke_token),
    Row("list-cut-short", "kube", "an apiserver's lists end too early, for seconds", cut_lists),
    Row("kafka-wiped", "wiped", "Kafka's data gone, its topics created anew, in mid-story", wipe_kafka),
    Row("disk-full", "disk", "Kafka's disk full (tmpfs), for seconds", fill_disk),
    Row("clock-jumps", "clocks", "the wall clock of one service jumps by an hour, and back", jump_clock),
)
ROW_BY_NAME = {row.name: row for row in ROWS}
