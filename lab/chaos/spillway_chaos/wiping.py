"""A fault that deletes the log during a run. The services must report it and stop, and must not touch any object."""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from aiokafka.errors import KafkaError

from spillway.api import DeleteRequest, RecoverFleetRequest

from .audit import NAMESPACE, Kept
from .ground import ALL_SERVICES, Ground, NotSo, wait_for_broker, wait_until
from .ledger import Finding

STOPPED_SECONDS, RECOVERED_SECONDS, SETTLED_SECONDS = 60.0, 60.0, 60.0
QUIET_SECONDS, ASKED_SECONDS = 5.0, 1.0
_SAID = '"event": "cannot run"'


async def wipe_log(ground: Ground, random: Random) -> str:
    """Kills Kafka and deletes its data. Kafka starts empty, and later gets topics for another fleet.

    Then recovers the fleet. Adds a finding for each object that changed. Returns a text on what was broken.
    """
    await ground.end_story()
    ground.load.asks.clear()
    fleet_before = ground.log.fleet
    said_before = {name: await ground.count_in_log(name, _SAID) for name in ALL_SERVICES}
    empty_seconds = random.choice((0.0, random.uniform(1.0, 8.0)))
    await _empty_broker(ground)
    await asyncio.sleep(empty_seconds)
    before = ground.audit.objects_by_cluster_and_uid()
    await _create_topics(ground)

    async def has_every_service_said_so() -> bool:
        return all([await ground.count_in_log(name, _SAID) > said_before[name] for name in ALL_SERVICES])

    await wait_until("every service said that it cannot run, and stopped", has_every_service_said_so, STOPPED_SECONDS)
    for name in ALL_SERVICES:
        await ground.ensure_running(name)
    await ground.wait_until_ready(*ALL_SERVICES)
    await ground.join_clusters()
    await asyncio.sleep(QUIET_SECONDS)
    ground.extra += find_touched_objects(before, ground.audit.objects_by_cluster_and_uid())
    ground.extra += ground.ledger.find_unasked_deletions(ground.audit.stopped_by_place())
    recovered = await _recover_fleet(ground, fleet_before)
    ground.load.asks.set()
    await asyncio.sleep(ASKED_SECONDS)
    told = f"the log wiped with {len(before)} objects in the members, without topics for {empty_seconds:.1f} s"
    return f"{told}; {recovered} workloads recovered"


def find_touched_objects(
    before: Mapping[tuple[str, str], Kept], after: Mapping[tuple[str, str], Kept]
) -> list[Finding]:
    """Returns a finding for each object that is gone, has changed, or is new."""
    found = [Finding("deleted", f"{before[key]} in {key[0]} is gone") for key in before.keys() - after.keys()]
    found += [Finding("doubled", f"{after[key]} in {key[0]} is new") for key in after.keys() - before.keys()]
    found += [
        Finding("contradictory", f"{before[key]} in {key[0]} is now {after[key]}")
        for key in before.keys() & after.keys()
        if before[key] != after[key]
    ]
    return found


async def _empty_broker(ground: Ground) -> None:
    (broker,) = ground.stack.brokers()
    ground.send_signal(broker.name, signal.SIGKILL)
    await asyncio.to_thread(ground.stack.supervision.stop_program, broker.name)
    await asyncio.to_thread(shutil.rmtree, broker.folder / "data")
    await asyncio.to_thread(broker.prepare)
    await ground.ensure_running(broker.name)
    await wait_for_broker(broker)


async def _create_topics(ground: Ground) -> None:
    """Creates the topics, and tries again while the broker is not ready, as an operator would."""

    async def has_created_topics() -> bool:
        try:
            await asyncio.to_thread(ground.stack.create_topics)
        except (KafkaError, TimeoutError):
            return False
        return True

    await wait_until("the topics are there", has_created_topics)


async def _recover_fleet(ground: Ground, fleet_before: str) -> int:
    """Recovers the fleet as `spillway fleet recover` does. Checks that its objects and pods are the same.

    Then scales and deletes workloads of the new fleet.
    """
    objects = ground.audit.objects_by_cluster_and_uid()
    running = Counter[str]()
    for kept in objects.values():
        running[kept.name] += kept.replicas
    request = RecoverFleetRequest(fleet_before, confirmed=True)

    async def is_everything_recovered() -> bool:
        reply = await ground.client.recover_fleet(request)
        refused = [one for one in reply.workloads if one.state == "Refused"]
        if refused:
            raise NotSo(f"recovery was refused: {refused}")
        return not reply.remaining and not reply.workloads

    await wait_until("everything is recovered", is_everything_recovered, RECOVERED_SECONDS)
    ground.extra += find_touched_objects(
        _without_versions(objects), _without_versions(ground.audit.objects_by_cluster_and_uid())
    )
    ground.begin_story(ground.stories + 1)
    for name, replicas in running.items():
        ground.ledger.note_request(name, replicas)
        ground.ledger.note_acknowledged(name, replicas)
    ground.extra += await ground.wait_until_settled(SETTLED_SECONDS)
    for name in running.keys() - {ground.pulse.name}:
        ground.ledger.note_delete_request(name)
        await _delete_workload(ground, name)
        ground.ledger.note_delete_acknowledged(name)
    return len(running)


async def _delete_workload(ground: Ground, name: str) -> None:
    """Deletes a workload, and tries again while the workload is still being taken over."""

    async def has_deleted_workload() -> bool:
        await ground.client.delete(DeleteRequest(NAMESPACE, name))
        return True

    await wait_until(f"{name} may be deleted", has_deleted_workload)


def _without_versions(objects: Mapping[tuple[str, str], Kept]) -> dict[tuple[str, str], Kept]:
    return {key: replace(kept, version=(-1, -1)) for key, kept in objects.items()}
