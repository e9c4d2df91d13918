"""What a caller's manifests may cost before they are read, while they are, and for how many at once."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from threading import Event, current_thread
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spillway import api
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest
from spillway.kubernetes import manifest_text
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX, read_manifest_once, read_object
from spillway.rpc.callers import Caller
from spillway.rpc.manifest_fields import manifests_of
from spillway.rpc.manifest_reading import (
    READ_AT_ONCE_CHARACTERS,
    READ_AT_ONCE_VALUES,
    READ_IN_TURN_CHARACTERS,
    ManifestReading,
    values_at_most,
)
from spillway.yaml_text import ValueBudget, read_yaml_within_budget

EVERYWHERE = Caller("root")
SHOP = Caller("shop", namespaces=frozenset({"shop"}))
BANK = Caller("bank", namespaces=frozenset({"bank"}))
VALUES_MAX = 5_000


def long_manifest(namespace: str = "shop", values: int = 10) -> str:
    """YAML that is too long to be read on the loop, with about so many values."""
    filling = "x" * READ_AT_ONCE_CHARACTERS
    lists = ",".join(["[]"] * values)
    return f"kind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\nx: [{lists}]\nfilling: {filling}\n"


@pytest.fixture
def reading() -> Iterator[ManifestReading]:
    made = ManifestReading(VALUES_MAX, waiting_max=2)
    yield made
    made.close()


@pytest.fixture
def yaml_readings(calls_of: Any) -> Iterator[list[Any]]:
    """One for each time that YAML is read."""
    with calls_of(read_yaml_within_budget) as calls:
        yield calls


REQUESTS = {
    "apply": lambda text: api.ApplyRequest((text, '{"kind": "ConfigMap", "metadata": {"name": "c"}}')),
    "plan_batch": lambda text: api.PlanBatchRequest(
        (api.BatchItem(api.ApplyRequest((text,))), api.BatchItem(scale=api.ScaleRequest("shop", "web", 1)))
    ),
    "declare_policy": DeclarePolicyRequest,
    "capacity": lambda text: api.CapacityRequest((text,)),
}


def manifest_texts_of(request: Any) -> list[str]:
    return [text for _, text in manifests_of(request)]


@pytest.mark.parametrize("verb", REQUESTS)
async def test_a_long_manifest_is_read_once_and_carried_on(reading: ManifestReading, verb: str, calls_of: Any) -> None:
    text = long_manifest()
    asked = REQUESTS[verb](text)
    checked = await reading.checked_request(SHOP, verb, asked)
    assert checked == asked, "the text is what it was: the digest of a keyed request, too"
    with calls_of(read_yaml_within_budget) as readings:
        expected = read_object(text, "manifests[0]")
        assert len(readings) == 1
        assert read_object(manifest_texts_of(checked)[0], "manifests[0]") == expected
    assert len(readings) == 1, "YAML is not read once more"


async def test_a_short_manifest_is_left_to_whoever_needs_it(reading: ManifestReading, yaml_readings: list[Any]) -> None:
    request = api.ApplyRequest(("kind: Deployment\nmetadata: {name: web, namespace: shop}\n",))
    assert await reading.checked_request(EVERYWHERE, "apply", request) is request
    assert yaml_readings == []


MANY_VALUES = [
    pytest.param("x: [" + "1," * READ_AT_ONCE_VALUES + "]", id="a-list-in-one-line"),
    pytest.param("x: {" + "a," * READ_AT_ONCE_VALUES + "}", id="keys-without-values"),
    pytest.param("x:\n" + "-\n" * READ_AT_ONCE_VALUES, id="a-list-of-nothing"),
    pytest.param("".join(f"k{number}:\n" for number in range(READ_AT_ONCE_VALUES)), id="keys-by-line"),
    pytest.param("x: [&a 1" + ",*a" * READ_AT_ONCE_VALUES + "]", id="aliases"),
]


@pytest.mark.parametrize("text", MANY_VALUES)
async def test_a_short_manifest_of_many_values_is_not_read_on_the_event_loop(
    reading: ManifestReading, text: str
) -> None:
    request = api.ApplyRequest((text,))
    assert len(text) < READ_AT_ONCE_CHARACTERS
    checked = await reading.checked_request(EVERYWHERE, "apply", request)
    assert checked is not request, "it was read in a thread, and is carried on as it was read"


YAML_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.one_of(st.integers(), st.text(max_size=5)), inner, max_size=5)
    ),
    max_leaves=40,
)


def count_values(value: object) -> int:
    """The scalars, lists and maps in it; keys are scalars."""
    if isinstance(value, dict):
        return 1 + sum(1 + count_values(inner) for inner in value.values())
    return 1 + (sum(map(count_values, value)) if isinstance(value, list) else 0)


@given(YAML_VALUES, st.sampled_from((None, True, False)), st.sampled_from((8, 80, 10_000)))
def test_no_yaml_has_more_values_than_its_separators_allow(value: object, flow: bool | None, width: int) -> None:
    """Twice as many, as a separator may stand for a key and its value; what is written by hand has fewer."""
    text = yaml.safe_dump(value, default_flow_style=flow, width=width)
    assert count_values(value) <= 2 * values_at_most([("manifests[0]", text)])


@pytest.mark.parametrize("verb", ["apply", "declare_policy", "capacity"])
async def test_what_is_too_large_is_refused_before_anything_is_read(
    reading: ManifestReading, verb: str, yaml_readings: list[Any]
) -> None:
    with pytest.raises(RequestError, match=f"bytes: expected at most {MANIFEST_BYTES_MAX}") as refused:
        await reading.checked_request(SHOP, verb, REQUESTS[verb]("[],\n" * MANIFEST_BYTES_MAX))
    assert refused.value.code == "INVALID_ARGUMENT"
    assert yaml_readings == []


async def test_many_short_manifests_of_one_caller_leave_another_its_time(reading: ManifestReading) -> None:
    """They are read on the event loop, one of each caller in an iteration."""
    answered: list[str] = []

    async def ask(caller: Caller, characters: int) -> None:
        manifest = f"kind: Deployment\nmetadata: {{name: web, namespace: {caller.name}}}\nx: {'x' * characters}\n"
        await reading.checked_request(caller, "apply", api.ApplyRequest((manifest,)))
        answered.append(caller.name)

    many = [ask(SHOP, READ_IN_TURN_CHARACTERS) for _ in range(20)]
    await asyncio.gather(*many, ask(BANK, READ_IN_TURN_CHARACTERS), ask(BANK, 10))
    assert answered.index("bank") == 0
    assert [name for name in answered[:4] if name == "bank"] == ["bank", "bank"]


async def test_an_item_that_is_too_large_is_that_items_alone(reading: ManifestReading) -> None:
    large = long_manifest() + "#" * MANIFEST_BYTES_MAX
    items = (api.BatchItem(api.ApplyRequest((large,))), api.BatchItem(api.ApplyRequest((long_manifest(),))))
    refused, read = manifest_texts_of(
        await reading.checked_request(EVERYWHERE, "plan_batch", api.PlanBatchRequest(items))
    )
    with pytest.raises(RequestError, match="bytes: expected at most"):
        read_object(refused, "manifests[0]")
    assert read_object(read, "manifests[0]")["kind"] == "Deployment"


async def test_the_values_of_all_manifests_of_a_request_are_bounded_together(reading: ManifestReading) -> None:
    half = long_manifest(values=VALUES_MAX * 2 // 3)
    one = await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((half,)))
    read_object(one.manifests[0], "manifests[0]")
    two = await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((half, half)))
    read_object(two.manifests[0], "manifests[0]")
    with pytest.raises(RequestError, match=r"manifests\[1\]: neither JSON nor YAML: more than \d+ values"):
        read_object(two.manifests[1], "manifests[1]")


def long_json(values: int) -> str:
    return json.dumps({"kind": "ConfigMap", "metadata": {"name": "a"}, "x": ["y"] * values, "z": "z" * 20_000})


async def test_values_of_json_are_counted_as_those_of_yaml(reading: ManifestReading) -> None:
    half = long_json(VALUES_MAX * 2 // 3)
    one = await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((half,)))
    assert read_object(one.manifests[0], "manifests[0]") == json.loads(half)
    first, second, third = (await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((half,) * 3))).manifests
    read_object(first, "manifests[0]")
    for refused in (second, third):
        with pytest.raises(RequestError, match=f"more than {VALUES_MAX} values") as caught:
            read_object(refused, "manifests[1]")
        assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "value", [{f"k{number}": "" for number in range(VALUES_MAX)}, [[]] * VALUES_MAX, [0] * VALUES_MAX]
)
async def test_keys_and_what_is_empty_are_values_of_json_too(reading: ManifestReading, value: object) -> None:
    text = json.dumps({"kind": "ConfigMap", "data": value, "x": "x" * READ_AT_ONCE_CHARACTERS})
    (read,) = (await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((text,)))).manifests
    with pytest.raises(RequestError, match=f"more than {VALUES_MAX} values"):
        read_object(read, "manifests[0]")


async def test_a_long_text_is_one_value_whatever_stands_in_it(reading: ManifestReading) -> None:
    text = json.dumps({"kind": "ConfigMap", "data": {"a": '[{"b":1},' * 50_000}})
    (read,) = (await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((text,)))).manifests
    assert read_object(read, "manifests[0]") == json.loads(text)


async def test_what_is_too_much_already_is_not_parsed(
    reading: ManifestReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each further manifest would cost as much as the first."""
    parsed, loads = list[int](), json.loads

    def counted(text: str, **options: Any) -> Any:
        parsed.append(len(text))
        return loads(text, **options)

    monkeypatch.setattr(manifest_text.json, "loads", counted)
    await reading.checked_request(EVERYWHERE, "apply", api.ApplyRequest((long_json(VALUES_MAX),) * 5))
    assert len(parsed) == 1


@pytest.mark.parametrize("verb", REQUESTS)
async def test_a_service_makes_something_of_long_requests_beside_the_loop(verb: str) -> None:
    threads, made = list[str](), list[Any]()

    def prepare(request: Any) -> Any:
        threads.append(current_thread().name)
        made.append(replace(request))
        return made[-1]

    reading = ManifestReading(VALUES_MAX, 2, prepare=prepare)
    try:
        short = api.ApplyRequest(('{"kind": "ConfigMap", "metadata": {"namespace": "shop"}}',))
        await reading.checked_request(SHOP, "apply", short)
        assert made == [], "what is short is read where it is needed"
        assert await reading.checked_request(SHOP, verb, REQUESTS[verb](long_manifest())) is made[0]
        assert threads[0].startswith("manifests")
        with pytest.raises(RequestError, match="may not"):
            await reading.checked_request(BANK, verb, REQUESTS[verb](long_manifest()))
        assert len(made) == 1, "who may not ask has nothing made of it"
    finally:
        reading.close()


async def test_values_of_a_manifest_that_cannot_be_read_are_counted_too(reading: ManifestReading) -> None:
    """Else each manifest of a request could cost as much as all of them may together."""
    broken = long_manifest(values=VALUES_MAX * 2 // 3) + "y: ["
    request = api.ApplyRequest((broken, long_manifest(values=VALUES_MAX // 2)))
    first, second = (await reading.checked_request(EVERYWHERE, "apply", request)).manifests
    with pytest.raises(RequestError, match=r"manifests\[0\]: neither JSON nor YAML: while parsing"):
        read_object(first, "manifests[0]")
    with pytest.raises(RequestError, match=rf"manifests\[1\]: neither JSON nor YAML: more than {VALUES_MAX} values"):
        read_object(second, "manifests[1]")


@pytest.mark.parametrize("namespace", ["bank", "default"])
async def test_a_long_manifest_elsewhere_is_refused(reading: ManifestReading, namespace: str) -> None:
    for verb in ("apply", "plan_batch", "declare_policy"):
        with pytest.raises(RequestError, match=f"'shop' may not .* in namespace '{namespace}'"):
            await reading.checked_request(SHOP, verb, REQUESTS[verb](long_manifest(namespace)))


async def test_one_callers_long_requests_are_read_in_turn_and_leave_others_a_thread() -> None:
    """Of three of shop one is read, one waits, one is refused; bank's is read meanwhile, and shop's others after it."""
    begun, go_on = Event(), Event()

    def slow(request: Any) -> Any:
        if "namespace: shop" in request.manifests[0]:
            begun.set()
            assert go_on.wait(30)
        return request

    reading = ManifestReading(VALUES_MAX, waiting_max=2, prepare=slow)
    shops = api.ApplyRequest((long_manifest(),))
    first, second = (asyncio.create_task(reading.checked_request(SHOP, "apply", shops)) for _ in range(2))
    await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(RequestError, match="2 long requests of caller 'shop' are being read") as refused:
        await reading.checked_request(SHOP, "apply", shops)
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    await asyncio.wait_for(reading.checked_request(BANK, "apply", api.ApplyRequest((long_manifest("bank"),))), 30)
    assert [first.done(), second.done()] == [False, False]
    second.cancel()
    go_on.set()
    assert (await first).manifests == shops.manifests
    assert (await reading.checked_request(SHOP, "apply", shops)).manifests == shops.manifests
    reading.close()


@pytest.mark.parametrize(
    ("text", "has_json"),
    [
        ('{"kind": "A", "x": 1}', False),
        ("kind: A\nx: [1, 2.5, true, null, '1']\n", True),
        ("kind: A\n1: x\n", False),
        ("kind: A\nx: .nan\n", False),
        ("kind: A\nx: !!binary aGk=\n", False),
        ("kind: A\nx: 2026-01-01\n", True),
        ("kind: A\nx: &x [1]\ny: *x\n", True),
    ],
)
def test_read_again_it_says_the_same(text: str, has_json: bool) -> None:
    once = read_manifest_once(text, ValueBudget(100))
    assert (once, bool(once.json)) == (text, has_json)
    assert repr(read_object(once, "m")) == repr(read_object(text, "m"))
    if has_json:
        assert json.loads(once.json) == read_object(text, "m")


@pytest.mark.parametrize(
    "text",
    [
        "kind: [",
        "kind: A\nx: [a, b",
        '{"kind": "A", "kind": "B"}',
        "[" * 70 + "]" * 70,
        "kind: A\na: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n",
        "- kind: A",
        "",
        "x: 1",
    ],
)
def test_read_again_it_is_refused_by_the_same_words(text: str) -> None:
    with pytest.raises(RequestError) as plain:
        read_object(text, "manifests[3]")
    with pytest.raises(RequestError) as again:
        read_object(read_manifest_once(text, ValueBudget(1_000)), "manifests[3]")
    assert (again.value.code, again.value.text) == (plain.value.code, plain.value.text)
