"""Which topics bear what users declare: values of variables, ConfigMaps, names of Secrets. docs/security.md names them.

Each is planted in all that services can be given, and looked for in every record, also in what is packed inside.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spillway.addresses import TOPICS, Topic
from spillway.api import AdoptRequest, ApplyRequest, DeleteRequest, GetRequest
from spillway.api_scaling import DeclarePolicyRequest
from spillway.clusters.api import DEPLOYMENTS, NAMESPACES, SECRETS
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .member_work import ALL_SERVICES, FLEET, POOL
from .platform_steps import NAMESPACE, join_members, wait_until
from .what_is_told import Listener

VALUE, SETTING, NAME, TRIGGER = "va1ue-of-a-variable", "va1ue-of-a-configmap", "name-of-a-s3cret", "query-of-a-trigg3r"
LACKING = f"{NAME}-that-is-lacking"
PLANTED: Final = {"values": VALUE, "ConfigMaps": SETTING, "names of Secrets": NAME, "policies": TRIGGER}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def web_deployment(name: str, secret: str, mark: str) -> str:
    manifest = json.loads(deployment(name, NAMESPACE, 2))
    manifest["spec"]["template"]["metadata"]["annotations"] = {"mark": mark}
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "INLINE", "value": VALUE},
        {"name": "REFERRED", "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}},
    ]
    return json.dumps(manifest)


def scaled_object_by_trigger() -> str:
    prometheus = {"serverAddress": "http://prometheus:9090", "query": TRIGGER, "threshold": "5"}
    spec = {"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "prometheus", "metadata": prometheus}]}
    metadata = {"name": "web", "namespace": NAMESPACE}
    kind = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    return json.dumps(kind | {"metadata": metadata, "spec": spec})


async def plant_texts(platform: InProcess) -> None:
    """Applied twice, so that a template rolls; adopted; lacking a Secret; scaled by a policy; deleted."""
    planner = platform.planner()
    for name in platform.members:
        await platform.member_api(name).create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        secret: dict[str, Any] = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {"key": "eA=="}}
        await platform.member_api(name).create(SECRETS, secret)
    metadata = {"name": "web-settings", "namespace": NAMESPACE}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": SETTING}}
    for mark in ("blue", "green"):
        await planner.apply(
            ApplyRequest((json.dumps(settings), web_deployment("web", NAME, mark)), idempotency_key=mark)
        )
        await wait_until(lambda: is_running(platform, "web"), f"web runs, {mark}", 120)
    await platform.hpa().declare_policy(DeclarePolicyRequest(scaled_object_by_trigger()))
    await platform.member_api(POOL).create(DEPLOYMENTS, json.loads(web_deployment("old", NAME, "blue")))
    await planner.adopt(AdoptRequest(NAMESPACE, "old", "deployment", (POOL,)))
    await wait_until(lambda: is_running(platform, "old"), "old is taken over", 120)
    await planner.apply(ApplyRequest((web_deployment("lacking", LACKING, "blue"),)))

    async def is_lack_said() -> bool:
        found = await planner.get(GetRequest(NAMESPACE, "lacking"))
        return any(one.name == LACKING for status in found.statuses for one in status.missing)

    await wait_until(is_lack_said, "the missing Secret is named", 120)
    await asyncio.sleep(90)  # In virtual time: what reserves nothing any more after a minute is decided anew.
    await planner.delete(DeleteRequest(NAMESPACE, "lacking"))
    await asyncio.sleep(5)


async def is_running(platform: InProcess, name: str) -> bool:
    found = await platform.planner().get(GetRequest(NAMESPACE, name))
    return sum(status.available for status in found.statuses if status.current) >= 2


class ByTopic(Listener):
    def texts_of(self, topic: Topic) -> Iterator[str]:
        whole = self._read_to
        self._read_to = {place: offset for place, offset in whole.items() if place[0] == topic.name}
        yield from self.texts_of_new_records()
        self._read_to = whole


@pytest.mark.looptime
async def test_docs_name_every_topic_that_bears_what_users_declare() -> None:
    async with in_process_platform(FLEET, ()) as platform:
        listener = ByTopic(platform.broker)
        for name in ALL_SERVICES:
            platform.start_instance(name)
        await join_members(platform)
        await wait_until(lambda: platform.hpa().is_active, "hpa is active", 60)
        await plant_texts(platform)
        told = {topic.name: " ".join(listener.texts_of(topic)) for topic in TOPICS}
    found = {name: {what for what, planted in PLANTED.items() if planted in text} for name, text in told.items()}
    found["spillway.dead-letters.v1"] = set(PLANTED)  # A record that cannot be read is there whole, whatever it is.
    bearing = {name: bears for name, bears in found.items() if bears}
    assert bearing == documented_texts_by_topic()


def documented_rows_by_topic() -> dict[str, tuple[str, str]]:
    """By topic, what of it stands there and who reads it."""
    section = PAGE.read_text().partition("### Topics that bear")[2].partition("\n### ")[0]
    found = re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \| [^|]* \| ([^|]*) \|$", section, re.MULTILINE)
    return {f"spillway.{topic}.v1": (what, readers) for topic, what, readers in found}


def documented_texts_by_topic() -> dict[str, set[str]]:
    same, found = "", dict[str, set[str]]()
    for topic, (what, _) in documented_rows_by_topic().items():
        same = same if what == "the same" else what
        found[topic] = {planted for planted in PLANTED if planted in same}
    return found


def test_docs_name_who_reads_each_of_these_topics() -> None:
    """Who may read the topic, from deploy/kafka/acls.sh. The Kafka user of the command may read every topic."""
    readers = {topic.name: set(topic.readers) - {"operators"} for topic in TOPICS}
    assert documented_rows_by_topic()
    for topic, (_, said) in documented_rows_by_topic().items():
        assert set(re.findall(r"`([a-z-]+)`", said)) == readers[topic] | {"cli"}, topic
