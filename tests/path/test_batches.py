"""PlanBatch: many requests in one step and one transaction, each with its own key and answer; and whose wait."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from descheduler.settings import DeschedulerSettings
from hpa.settings import HpaSettings
from planner.settings import PlannerSettings
from spillway import metrics
from spillway.api import (
    ApplyRequest,
    BatchItem,
    DeleteRequest,
    DisownRequest,
    GetRequest,
    ListRequest,
    PlanBatchReply,
    PlanBatchRequest,
    RequestError,
    ScaleRequest,
)
from spillway.api_lending import PauseLendingRequest
from spillway.api_scaling import DeletePolicyRequest
from spillway.reasons import TOO_MANY_WAIT
from spillway.rpc.callers import Caller
from spillway.rpc.security import CALLER, COUNT_CALLS, LOCAL_CALLER
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime


def item_to_apply(number: int, replicas: int = 1, key: str = "") -> BatchItem:
    return BatchItem(apply=ApplyRequest((deployment(f"web-{number}", NAMESPACE, replicas),), key))


def item_to_scale(name: str, replicas: int, key: str = "") -> BatchItem:
    return BatchItem(scale=ScaleRequest(NAMESPACE, name, replicas, key))


DECIDING = ("snapshot-1", "planner-1")
"""Without a propagator nobody is asked about templates, which is a transaction of its own."""


def transaction_counts() -> tuple[float, float]:
    """(transactions, requests in them) so far, of this process."""
    samples = {
        sample.name: sample.value for family in metrics.TRANSACTION_REQUESTS.collect() for sample in family.samples
    }
    return samples["spillway_transaction_requests_count"], samples["spillway_transaction_requests_sum"]


async def transactions_of_batch(platform: InProcess, request: PlanBatchRequest) -> tuple[float, list[str]]:
    """How many transactions had the requests of a batch, and its answers' codes."""
    before = transaction_counts()
    reply = await platform.planner().plan_batch(request)
    count, requests = (now - then for now, then in zip(transaction_counts(), before, strict=True))
    assert requests == sum(answer.code == "OK" for answer in reply.answers)
    return count, [answer.code for answer in reply.answers]


async def test_a_batch_is_one_transaction_however_small_the_groups_are() -> None:
    async with in_process_platform(
        services=DECIDING, planner_settings=PlannerSettings(requests_in_group_max=3)
    ) as platform:
        await join_members(platform)
        request = PlanBatchRequest(tuple(item_to_apply(number) for number in range(20)))
        assert await transactions_of_batch(platform, request) == (1, ["OK"] * 20)
        found = await platform.planner().list(ListRequest(NAMESPACE))
        assert sum(reply.placement.placed for reply in found.workloads) == 20


async def test_one_that_is_too_large_for_the_log_is_refused_and_the_turn_goes_on() -> None:
    """Letters that JSON writes as six bytes each: what was let in as a request is no record."""
    text = json.dumps({"letters": "é" * 400_000}, ensure_ascii=False)
    config = f'{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "big"}}, "data": {text}}}'
    manifest = deployment("too-large", NAMESPACE, 1)
    too_large = BatchItem(apply=ApplyRequest((manifest, config), "key"))
    async with in_process_platform(services=DECIDING) as platform:
        await join_members(platform)
        planner, turn = platform.planner(), metrics.TURNS_TAKEN.labels("planner")
        before = turn._value.get()
        batch = PlanBatchRequest((item_to_apply(0), too_large, item_to_apply(1)))
        alone = asyncio.create_task(planner.apply(ApplyRequest((deployment("alone", NAMESPACE, 1),))))
        reply = await planner.plan_batch(batch)
        assert [answer.code for answer in reply.answers] == ["OK", "FAILED_PRECONDITION", "OK"]
        said = reply.answers[1].error
        assert ("DependencyDeclared" in said, "of them in manifest: expected at most 20" in said) == (True, True)
        assert (await alone).placed == 1
        assert (planner.is_active, turn._value.get()) == (True, before)
        with pytest.raises(RequestError, match="not declared"):
            await planner.get(GetRequest(NAMESPACE, "too-large"))


async def test_what_one_is_refused_for_does_not_touch_the_others() -> None:
    """In their order: what is declared first can be scaled by the next."""
    async with in_process_platform(services=DECIDING) as platform:
        await join_members(platform)
        items = (
            item_to_apply(0),
            item_to_scale("web-0", 7),
            item_to_scale("nobody", 3),
            item_to_apply(1, replicas=-1),
            item_to_apply(2),
        )
        _, codes = await transactions_of_batch(platform, PlanBatchRequest(items))
        assert codes == ["OK", "OK", "NOT_FOUND", "INVALID_ARGUMENT", "OK"]
        reply = await platform.planner().get(GetRequest(NAMESPACE, "web-0"))
        assert reply.placement.replicas == 7


def without_inputs(reply: PlanBatchReply) -> PlanBatchReply:
    """What was decided on stands in the records of the decisions, and is not kept with the answers."""
    answers = (replace(one, placement=one.placement and replace(one.placement, inputs=())) for one in reply.answers)
    return PlanBatchReply(tuple(answers))


async def test_a_batch_asked_again_with_its_keys_has_the_same_answers() -> None:
    async with in_process_platform() as platform:
        await join_members(platform)
        request = PlanBatchRequest((item_to_apply(0, 2, "a"), item_to_scale("web-0", 5, "b"), item_to_apply(1, 2, "c")))
        first = await platform.planner().plan_batch(request)
        await asyncio.sleep(1)
        assert await platform.planner().plan_batch(request) == without_inputs(first)


def large_deployment() -> str:
    """A workload whose declaration has some 9 kB."""
    found = json.loads(deployment("web", NAMESPACE, 1))
    found["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 8_000]
    return json.dumps(found)


async def test_a_batch_writes_no_more_of_its_workloads_again_than_its_bound() -> None:
    """A Scale of 40 bytes writes the whole declaration. A repetition writes nothing, and its answers are known."""
    async with in_process_platform(services=DECIDING, planner_settings=PlannerSettings(batch_bytes_max=20_000)) as one:
        await join_members(one)
        planner = one.planner()
        await planner.apply(ApplyRequest((large_deployment(),)))
        twice = PlanBatchRequest((item_to_scale("web", 2, "a"), item_to_scale("web", 3, "b")))
        with pytest.raises(RequestError) as refused:
            await planner.plan_batch(PlanBatchRequest((*twice.items, item_to_scale("web", 4))))
        assert refused.value.code == "INVALID_ARGUMENT"
        assert "items: 2" in refused.value.text
        assert "expected at most 20000 bytes of declarations that the items write:" in refused.value.text
        assert (await planner.get(GetRequest(NAMESPACE, "web"))).placement.replicas == 1
        first = await planner.plan_batch(twice)
        assert [answer.code for answer in first.answers] == ["OK", "OK"]
        assert await planner.plan_batch(twice) == without_inputs(first)


SHORT_YAML = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "x:1", args: [&a "LONG", *a, *a, *a]}]}
""".replace("NAMESPACE", NAMESPACE).replace("LONG", "x" * 5_000)
LARGE = (
    # A request about a workload whose declaration has some 9 kB, and the further calls that it counts for.
    pytest.param(lambda planner: planner.scale(ScaleRequest(NAMESPACE, "web", 2)), 9, id="scale"),
    pytest.param(lambda planner: planner.delete(DeleteRequest(NAMESPACE, "web")), 9, id="delete"),
    pytest.param(lambda planner: planner.disown(DisownRequest(NAMESPACE, "web")), 9, id="disown"),
    pytest.param(
        lambda planner: planner.plan_batch(PlanBatchRequest((item_to_scale("web", 2), item_to_scale("web", 3)))),
        18,
        id="two in a batch",
    ),
    pytest.param(lambda planner: planner.scale(ScaleRequest(NAMESPACE, "none", 2)), 0, id="of no workload"),
    pytest.param(lambda planner: planner.apply(item_to_apply(0).apply), 0, id="a small apply"),
    pytest.param(lambda planner: planner.apply(ApplyRequest((SHORT_YAML,))), 20, id="short text, long values"),
)


async def test_a_batch_counts_once_for_all_that_it_writes() -> None:
    """Item by item, a batch that is refused in its middle had used up the calls of the items before."""
    counted = list[tuple[int, int]]()
    async with in_process_platform(services=DECIDING, planner_settings=PlannerSettings(call_bytes=1000)) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((large_deployment(),)))
        token = COUNT_CALLS.set(lambda calls, taken: counted.append((calls, taken)))
        await platform.planner().plan_batch(PlanBatchRequest((item_to_scale("web", 2), item_to_scale("web", 3))))
        COUNT_CALLS.reset(token)
    assert counted == [(18, 2)]


@pytest.mark.parametrize(("ask", "calls"), LARGE)
async def test_a_request_counts_as_calls_for_what_it_writes_again(
    ask: Callable[[Any], Awaitable[Any]], calls: int
) -> None:
    counted = list[int]()
    settings = PlannerSettings(call_bytes=1000)
    async with in_process_platform(services=DECIDING, planner_settings=settings) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((large_deployment(),)))
        token = COUNT_CALLS.set(lambda calls, taken: counted.append(calls))
        with suppress(RequestError):
            await ask(platform.planner())
        COUNT_CALLS.reset(token)
    assert sum(counted) == calls


@pytest.mark.parametrize(
    ("items", "words"),
    [
        pytest.param((), "items: 0: expected 1 to 5", id="none"),
        pytest.param(tuple(item_to_apply(number) for number in range(6)), "items: 6: expected 1 to 5", id="too many"),
        pytest.param((item_to_apply(0), BatchItem()), "items[1]: 'none'", id="nothing asked"),
    ],
)
async def test_a_batch_that_cannot_be_read_changes_nothing(items: tuple[BatchItem, ...], words: str) -> None:
    async with in_process_platform(planner_settings=PlannerSettings(batch_items_max=5)) as platform:
        await join_members(platform)
        with pytest.raises(RequestError) as refused:
            await platform.planner().plan_batch(PlanBatchRequest(items))
        assert refused.value.code == "INVALID_ARGUMENT"
        assert words in refused.value.text
        assert not (await platform.planner().list(ListRequest())).workloads


async def test_one_callers_batches_leave_room_for_anothers_request() -> None:
    """Before anything is decided: shop may have half of the places, and bank's one request comes before shop's."""
    bounds = PlannerSettings(requests_waiting_max=8, batch_items_max=4, requests_in_group_max=1)
    async with in_process_platform(services=DECIDING, planner_settings=bounds) as platform:
        await join_members(platform)
        planner, answered = platform.planner(), list[str]()

        async def ask_for_batches(caller: str, first: int, items: int) -> None:
            CALLER.set(Caller(caller))
            request = PlanBatchRequest(tuple(item_to_apply(number) for number in range(first, first + items)))
            assert [answer.code for answer in (await planner.plan_batch(request)).answers] == ["OK"] * items
            answered.append(caller)

        asked = (ask_for_batches("shop", 0, 4), ask_for_batches("shop", 4, 1), ask_for_batches("bank", 10, 1))
        first, refused, other = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, other) == (None, None)
        assert str(refused).startswith("4 requests of caller 'shop' wait already, and 4 places are free")
        assert answered == ["bank", "shop"]


ASKED: dict[str, Callable[[InProcess], Awaitable[object]]] = {
    "planner": lambda platform: platform.planner().delete(DeleteRequest(NAMESPACE, "nobody")),
    "hpa": lambda platform: platform.hpa().delete_policy(DeletePolicyRequest(NAMESPACE, "nobody")),
    "descheduler": lambda platform: platform.descheduler().pause_lending(PauseLendingRequest("nobody")),
}
"""Of each service a request that it decides, and refuses."""


async def reason_of_refusal(platform: InProcess, service: str, caller: Caller) -> str:
    CALLER.set(caller)
    with pytest.raises(RequestError) as refused:
        await ASKED[service](platform)
    return refused.value.reason


@pytest.mark.parametrize("service", ASKED)
async def test_places_of_each_services_queue_are_by_caller(service: str) -> None:
    """Of four places a caller may have two, and where nobody is asked who they are all of them."""
    bounds: dict[str, Any] = {
        "planner_settings": PlannerSettings(requests_waiting_max=4),
        "hpa_settings": HpaSettings(requests_waiting_max=4),
        "descheduler_settings": DeschedulerSettings(requests_waiting_max=4),
    }
    async with in_process_platform(services=(f"{service}-1",), **bounds) as platform:
        await wait_until(lambda: platform.running[f"{service}-1"].service.is_active, "its turn")
        for caller, places in ((Caller("shop"), 2), (LOCAL_CALLER, 4)):
            asking = (asyncio.create_task(reason_of_refusal(platform, service, caller)) for _ in range(6))
            reasons = await asyncio.gather(*asking)
            assert reasons.count(TOO_MANY_WAIT) == 6 - places
