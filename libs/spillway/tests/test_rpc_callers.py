"""The callers file: who may what, where, and that a change of it needs no restart."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from grpc import aio
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spillway import api, metrics, tracing
from spillway.api import RequestError
from spillway.api_scaling import ReportRequest
from spillway.events_scaling import BacklogObserved, LoadObserved
from spillway.kubernetes.pod_security import BASELINE
from spillway.messages import fill_message
from spillway.rpc.callers import Caller, CallersFile, PodRights, parse_callers
from spillway.rpc.calls import PLANNER, SCALING, request_bytes
from spillway.rpc.client import PlannerClient
from spillway.rpc.incoming import parse_request
from spillway.rpc.security import Gate, RpcSettings, TooManyCalls
from spillway.rpc.server import RpcServer
from spillway.rpc.shares import CallerShare, Shares
from spillway.rpc.trailers import LEADER_TRAILER, PUSHBACK_TRAILER, VERSION_TRAILER
from spillway.settings import OperatorError
from spillway.verb_names import READING_VERBS, VERBS


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


FILES = {
    "callers.yaml": (
        f"callers:\n- name: ci\n  token_sha256: {token_digest('t')}\n  verbs: [read]\n  namespaces: [shop-*]\n"
    ),
    "callers.json": f'{{"callers":[{{"name":"ci","token_sha256":"{token_digest("t")}","verbs":["read"],'
    '"namespaces":["shop-*"]}]}',
    "callers.toml": f'[[callers]]\nname = "ci"\ntoken_sha256 = "{token_digest("t")}"\nverbs = ["read"]\n'
    'namespaces = ["shop-*"]\n',
}


@pytest.mark.parametrize("name", FILES)
def test_each_form_of_the_file_says_the_same(name: str) -> None:
    confined = PodRights(BASELINE, priority_classes=None, priority_max=0, service_types=None)
    expected = Caller("ci", frozenset({"read"}), frozenset({"shop-*"}), token_digest("t"), confined)
    assert parse_callers(FILES[name].encode(), name).by_token == {token_digest("t"): expected}


@pytest.mark.parametrize(
    ("patterns", "namespace", "allowed"),
    [
        (["*"], "", True),
        (["*"], "any", True),
        (["shop-*"], "shop-eu", True),
        (["shop-*"], "shop-", True),
        (["shop-*"], "shop", False),
        (["shop-*"], "workshop-eu", False),
        (["shop-*"], "", False),
        (["shop-?"], "shop-1", True),
        (["shop-?"], "shop-12", False),
        (["a", "team-*"], "team-b", True),
        (["Shop"], "shop", False),
    ],
)
def test_patterns_of_namespaces(patterns: list[str], namespace: str, allowed: bool) -> None:
    caller = Caller("ci", namespaces=frozenset(patterns))
    if allowed:
        caller.require_verb_in_namespace("get", namespace)
        return
    with pytest.raises(RequestError) as refused:
        caller.require_verb_in_namespace("get", namespace)
    assert refused.value.code == "PERMISSION_DENIED"
    where = f"'{namespace}'" if namespace else "all namespaces"
    assert [word for word in ("'ci'", "get", where, *patterns) if word not in refused.value.text] == []


CHANGING = sorted(set(VERBS) - READING_VERBS)


def test_what_only_reads_is_among_the_verbs_and_nothing_that_changes_is() -> None:
    assert set(VERBS) > READING_VERBS
    changing = {"apply", "scale", "delete", "migrate", "plan_batch", "adopt", "disown", "recover_fleet"}
    changing |= {"join_cluster", "set_cluster_phase", "leave_cluster", "freeze", "unfreeze", "confirm"}
    changing |= {"declare_policy", "delete_policy", "report", "declare_lending", "withdraw_lending"}
    changing |= {"pause_lending", "resume_lending", "recall"}
    assert set(CHANGING) == changing


@pytest.mark.parametrize("verb", CHANGING)
def test_who_may_read_changes_nothing(verb: str) -> None:
    with pytest.raises(RequestError, match=f"'ci' may not {verb}: this caller may read"):
        Caller("ci", frozenset({"read"})).require_verb(verb)


BAD = {
    "not YAML": "callers: [",
    "an alias of itself": "callers: &a [*a]",
    "no callers": "people: []",
    "nothing": "",
    "a verb that there is not": "callers: [{name: ci, verbs: [fly]}]",
    "an empty namespace": "callers: [{name: ci, verbs: [read], namespaces: ['']}]",
    "two of one name": "callers: [{name: ci, verbs: [read]}, {name: ci, verbs: [read]}]",
    "bytes": "callers: [{name: \x00, verbs: [read]}]",
    "neither verbs nor namespaces": "callers: [{name: ci}]",
    "namespaces without verbs": "callers: [{name: ci, namespaces: [shop]}]",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_at_the_start_and_ignored_later(tmp_path: Path, text: str) -> None:
    file = tmp_path / "callers.yaml"
    file.write_text(text)
    with pytest.raises(OperatorError, match=r"callers\.yaml"):
        CallersFile(str(file))
    file.write_text(FILES["callers.yaml"])
    known = CallersFile(str(file))
    before = known.callers
    file.write_text(text)
    assert not known.reload_if_changed()
    assert known.callers is before
    assert _bad_callers_file_gauge() == 1
    file.write_text(FILES["callers.yaml"] + "- name: other\n  verbs: [read]\n")
    assert known.reload_if_changed()
    assert (sorted(known.callers.limits), _bad_callers_file_gauge()) == (["ci", "other"], 0)


def test_a_former_verb_gives_no_right_and_the_refusal_says_what_it_is_called_now() -> None:
    with pytest.raises(OperatorError) as refused:
        parse_callers(b"callers: [{name: ci, verbs: [read, release, fly]}]", "callers.yaml")
    text = str(refused.value)
    assert "ci: verbs fly, release: release is called disown now; expected some of *, read, adopt" in text
    assert "release" not in text.partition("expected")[2].split(", ")


def test_a_file_that_is_gone_changes_nothing_until_it_is_back(tmp_path: Path) -> None:
    file = tmp_path / "callers.yaml"
    file.write_text(FILES["callers.yaml"])
    known = CallersFile(str(file))
    file.unlink()
    assert (known.reload_if_changed(), known.reload_if_changed(), _bad_callers_file_gauge()) == (False, False, 1)
    file.write_text(FILES["callers.yaml"])
    assert (known.reload_if_changed(), _bad_callers_file_gauge(), sorted(known.callers.limits)) == (False, 0, ["ci"])


def test_a_bad_file_is_told_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "callers.yaml"
    file.write_text(FILES["callers.yaml"])
    known = CallersFile(str(file))
    file.write_text("callers: [{name: ci, verbs: [fly]}]")
    known.reload_if_changed()
    known.reload_if_changed()
    assert capsys.readouterr().out.count("cannot be used") == 1


def test_after_how_many_seconds_the_next_call_is_let_in() -> None:
    clock = [0.0]
    gate = Gate(RpcSettings(requests_burst=1, requests_per_second=4.0), lambda: clock[0])
    caller = gate.identify_caller("", ())
    gate.admit_call(caller, "get")
    with pytest.raises(TooManyCalls, match=r"try again in 0\.25 s") as refused:
        gate.admit_call(caller, "get")
    clock[0] += refused.value.seconds
    gate.admit_call(caller, "get")


def batch_of_items(items: int) -> api.PlanBatchRequest:
    return api.PlanBatchRequest((api.BatchItem(scale=api.ScaleRequest("shop", "web", 1)),) * items)


def message_of(request: object) -> Message:
    """The message of a request, as a server receives it."""
    calls = (*PLANNER.calls.values(), *SCALING.calls.values())
    message = next(call for call in calls if call.request is type(request)).request_message()
    fill_message(request, message)
    return message


def gate_with_certificates(burst: int, rate: float, now: Callable[[], float]) -> Gate:
    """That lets in whom its CA knows."""
    known = RpcSettings(client_ca="ca", tls_certificate="certificate", tls_key="key")
    return Gate(replace(known, requests_burst=burst, requests_per_second=rate), now)


def seconds_until_let_in(gate: Gate, items: int) -> float:
    """0, or after how many seconds it would be."""
    try:
        gate.admit_call(Caller("shop"), "plan_batch")
        gate.count_items(Caller("shop"), message_of(batch_of_items(items)))
    except TooManyCalls as refused:
        return refused.seconds
    return 0.0


BATCHES = (
    # Of a burst of 10, then 2 a second: batches by their items, and after how many seconds each is let in.
    pytest.param([10, 1], [0, 0.5], id="each item counts"),
    pytest.param([1] * 11, [0] * 10 + [0.5], id="a batch of one is one call"),
    pytest.param([6, 6], [0, 1.5], id="all of it or nothing, and a batch that is refused is one call"),
    pytest.param([0, 10], [0, 1.0], id="an empty one is a call"),
    pytest.param([25, 1], [0, 8.0], id="more than the burst is let in by a full bucket and paid for afterwards"),
    pytest.param([1, 25], [0, 1.0], id="and only by a full one"),
)


@pytest.mark.parametrize(("asked", "expected"), BATCHES)
def test_each_item_of_a_batch_is_a_call_of_the_rate(asked: list[int], expected: list[float]) -> None:
    gate = gate_with_certificates(10, 2.0, lambda: 0.0)
    assert [seconds_until_let_in(gate, items) for items in asked] == pytest.approx(expected)


def test_each_value_and_backlog_of_a_report_is_a_call_of_the_rate() -> None:
    gate, caller = gate_with_certificates(10, 2.0, lambda: 0.0), Caller("shop")
    load = LoadObserved("shop", "web", "queue", "", "", "", "", 1, 0, 0, "", "")
    queue = BacklogObserved("shop", "web", "kafka", "g", "orders", (), 0, "", "")
    gate.admit_call(caller, "report")
    gate.count_items(caller, message_of(ReportRequest((load,))))  # Which is that call.
    gate.count_items(caller, message_of(ReportRequest((load,) * 6, (queue,) * 4)))
    with pytest.raises(TooManyCalls, match="2 at once, of more than 2 calls a second: try again in 1 s"):
        gate.count_items(caller, message_of(ReportRequest((load,), (queue,))))


def test_items_beyond_the_rate_are_refused_before_anything_is_made_of_them() -> None:
    """5,000 values that were refused took 30 ms of the event loop, again and again."""
    gate, report = gate_with_certificates(10, 2.0, lambda: 0.0), SCALING.calls["report"]
    message_bytes = report.request_message(loads=[{}] * 200).SerializeToString()
    gate.admit_call(Caller("shop"), "report")
    gate.admit_call(Caller("shop"), "report")  # Of these two calls one was somebody's before.
    with pytest.raises(RequestError, match="entries: expected at most 100"):
        parse_request(report, message_bytes, 100, lambda _: None)
    with pytest.raises(TooManyCalls):
        parse_request(report, message_bytes, 100, partial(gate.count_items, Caller("shop")))


@given(
    st.integers(1, 20),
    st.sampled_from((0.5, 2.0, 16.0)),
    st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.25, 1.0, 8.0)), st.integers(0, 40)), max_size=40),
)
def test_no_caller_has_more_items_than_its_rate_and_none_is_refused_for_ever(
    burst: int, rate: float, asked: list[tuple[float, int]]
) -> None:
    """In any time: the burst, what the rate gives in it, and what one batch has beyond a burst."""
    clock = [0.0]
    gate = gate_with_certificates(burst, rate, lambda: clock[0])
    taken: list[tuple[float, int]] = []
    for pause, items in asked:
        clock[0] += pause
        waits = 0
        while seconds := seconds_until_let_in(gate, items):
            clock[0] += seconds + 1e-6
            waits += 1
        assert waits <= 2  # Of a batch that is not read yet only its own call is known.
        taken.append((clock[0], max(1, items)))
    beyond = max((items - burst for _, items in taken), default=0)
    for begin, (since, _) in enumerate(taken):
        for end in range(begin, len(taken)):
            together = sum(items for _, items in taken[begin : end + 1])
            assert together <= burst + rate * (taken[end][0] - since) + max(0, beyond) + 1e-3


def _bad_callers_file_gauge() -> float:
    return metrics.CALLERS_FILE_BAD._value.get()


# ── Over gRPC ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Planner:
    """Answers Get with NOT_FOUND, and Watch with one change, then with none until the caller goes away.

    leader: nobody, else the client would go on there, and a planner of this machine's `make up` may listen.
    """

    def __init__(self, leader: str = "") -> None:
        self._leader = leader

    async def get(self, request: api.GetRequest) -> api.WorkloadReply:
        raise RequestError("NOT_FOUND", "nothing is declared")

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        yield api.WatchReply("1", "shop-eu", "web", True, None)
        await asyncio.Event().wait()

    def active_instance_address(self) -> str:
        return self._leader


def write_callers_file(file: Path, **namespaces_by_token: str) -> None:
    """At once, as a mounted Secret changes: nobody reads half of it."""
    entries = [
        f"- {{name: {token}, token_sha256: {token_digest(token)}, verbs: ['*'], namespaces: ['{namespaces}']}}"
        for token, namespaces in namespaces_by_token.items()
    ]
    beside = file.with_suffix(".new")
    beside.write_text("\n".join(["callers:", *entries]))
    beside.replace(file)


async def code_of_answer(client: PlannerClient) -> str:
    try:
        await client.get(api.GetRequest("shop-eu", "web"))
    except RequestError as error:
        return error.code
    raise AssertionError("there is nothing to get")


async def wait_until(holds: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.01)
    assert what


class ClusterNamingPlanner(Planner):
    async def get(self, request: api.GetRequest) -> api.WorkloadReply:
        raise RequestError("NOT_FOUND", "no such cluster: own-1, own-2", text_without_clusters="no such cluster: 2")


async def test_a_refusal_names_clusters_to_callers_that_may_list_them(tmp_path: Path) -> None:
    file, texts = tmp_path / "callers.yaml", []
    rights = {"reads": "read", "lists": "get, list_clusters", "gets": "get"}
    file.write_text(
        "callers:\n"
        + "".join(f"- {{name: {who}, token_sha256: {token_digest(who)}, verbs: [{rights[who]}]}}\n" for who in rights)
    )
    settings = RpcSettings(port=0, callers=str(file), stop_seconds=0.1)
    async with RpcServer(ClusterNamingPlanner(), settings) as server:  # type: ignore[arg-type]
        for who in rights:
            async with PlannerClient([server.address], token=who) as client:
                with pytest.raises(RequestError) as refused:
                    await client.get(api.GetRequest("shop", "web"))
                texts.append(refused.value.text)
    assert texts == ["no such cluster: own-1, own-2"] * 2 + ["no such cluster: 2"]


async def test_a_change_of_the_file_needs_no_restart(tmp_path: Path) -> None:
    file = tmp_path / "callers.yaml"
    write_callers_file(file, old="shop-*")
    settings = RpcSettings(port=0, callers=str(file), callers_check_seconds=0.01, stop_seconds=0.1)
    async with (
        RpcServer(Planner(), settings) as server,  # type: ignore[arg-type]
        PlannerClient([server.address], token="old", retry_seconds=0.1) as old,
        PlannerClient([server.address], token="new", retry_seconds=0.1) as new,
    ):
        assert (await code_of_answer(old), await code_of_answer(new)) == ("NOT_FOUND", "UNAUTHENTICATED")
        write_callers_file(file, old="other", new="shop-*")

        async def has_changed() -> bool:
            return (await code_of_answer(old), await code_of_answer(new)) == ("PERMISSION_DENIED", "NOT_FOUND")

        await wait_until(has_changed, "who was added is let in, who has other namespaces is refused")
        file.write_text("callers: [")

        async def is_told() -> bool:
            return _bad_callers_file_gauge() == 1

        await wait_until(is_told, "the bad file is told of")
        assert await has_changed()


async def test_a_watch_ends_with_what_its_caller_might_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "callers.yaml"
    write_callers_file(file, gone="shop-*", stays="shop-*")
    settings = RpcSettings(port=0, callers=str(file), callers_check_seconds=0.01, stop_seconds=0.1)
    async with (
        RpcServer(Planner(), settings) as server,  # type: ignore[arg-type]
        PlannerClient([server.address], token="gone", retry_seconds=1) as gone,
        PlannerClient([server.address], token="stays", retry_seconds=1) as stays,
    ):
        ending, going_on = (client.watch(api.WatchRequest("shop-eu", "web")) for client in (gone, stays))
        await anext(ending)
        await anext(going_on)
        later = asyncio.ensure_future(anext(going_on))
        write_callers_file(file, stays="shop-*")
        with pytest.raises(RequestError) as refused:
            await asyncio.wait_for(anext(ending), 10)
        assert refused.value.code == "UNAUTHENTICATED"
        assert not later.done()
        later.cancel()


async def test_a_watch_ends_when_its_token_is_replaced(tmp_path: Path) -> None:
    """Name, verbs and namespaces stay: whoever holds the token of before hears nothing more."""
    file = tmp_path / "callers.yaml"
    write_callers_file(file, old="shop-*")
    settings = RpcSettings(port=0, callers=str(file), callers_check_seconds=0.01, stop_seconds=0.1)
    async with (
        RpcServer(Planner(), settings) as server,  # type: ignore[arg-type]
        PlannerClient([server.address], token="old", retry_seconds=1) as client,
    ):
        watch = client.watch(api.WatchRequest("shop-eu", "web"))
        await anext(watch)
        beside = file.with_suffix(".new")
        beside.write_text(file.read_text().replace(token_digest("old"), token_digest("new")))
        beside.replace(file)
        with pytest.raises(RequestError) as refused:
            await asyncio.wait_for(anext(watch), 10)
        assert refused.value.code == "UNAUTHENTICATED"


async def test_one_callers_watches_leave_room_for_anothers(tmp_path: Path) -> None:
    file = tmp_path / "callers.yaml"
    write_callers_file(file, shop="shop-*", bank="*")
    settings = RpcSettings(port=0, callers=str(file), watches_caller_max=1, stop_seconds=0.1)
    request = api.WatchRequest("shop-eu", "web")
    async with (
        RpcServer(Planner(), settings) as server,  # type: ignore[arg-type]
        PlannerClient([server.address], token="shop", retry_seconds=0.1) as shop,
        PlannerClient([server.address], token="bank", retry_seconds=0.1) as bank,
    ):
        first = shop.watch(request)
        await anext(first)
        with pytest.raises(RequestError, match="at most 1 of one caller") as refused:
            await anext(shop.watch(request))
        assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHES")
        await anext(bank.watch(request))
        assert await code_of_answer(shop) == "NOT_FOUND", "calls are counted for themselves"
        await first.aclose()  # type: ignore[attr-defined]

        async def is_let_in() -> bool:
            try:
                await anext(shop.watch(request))
            except RequestError:
                return False
            return True

        await wait_until(is_let_in, "there is room again")


class Explaining(Planner):
    """Explanations end when may_end is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end, self.under_way = asyncio.Event(), Counter[str]()

    async def explain(self, request: api.ExplainRequest) -> api.ExplainReply:
        self.under_way[request.namespace] += 1
        try:
            await self.may_end.wait()
        finally:
            self.under_way[request.namespace] -= 1
        raise RequestError("NOT_FOUND", "no such workload")


@pytest.mark.parametrize("known", [True, False], ids=["callers are known", "everybody is one caller"])
async def test_one_callers_explanations_wait_for_each_other_and_nobody_elses(tmp_path: Path, known: bool) -> None:
    file, planner = tmp_path / "callers.yaml", Explaining()
    write_callers_file(file, shop="shop-*", bank="*")
    bounds = RpcSettings(port=0, computations_caller_max=2, stop_seconds=0.1)
    settings = replace(bounds, callers=str(file)) if known else bounds
    async with (
        RpcServer(planner, settings) as server,  # type: ignore[arg-type]
        PlannerClient([server.address], token="shop", retry_seconds=0.1) as shop,
        PlannerClient([server.address], token="bank", retry_seconds=0.1) as bank,
    ):

        def ask_in_background(
            client: PlannerClient, namespace: str, seconds: float
        ) -> "asyncio.Task[api.ExplainReply]":
            return asyncio.create_task(client.explain(api.ExplainRequest(namespace, "web"), seconds))

        given_up = [ask_in_background(shop, "shop-eu", 1) for _ in range(3)]
        await asyncio.wait(given_up)
        refused = [cast(RequestError, one.exception()).code for one in given_up]
        assert refused == ["DEADLINE_EXCEEDED"] * 3
        explanations = [ask_in_background(shop, "shop-eu", 30) for _ in range(5)]
        other = ask_in_background(bank, "bank", 30)
        allowed = 2 if known else 5

        async def are_under_way() -> bool:
            return planner.under_way == Counter({"shop-eu": allowed, "bank": 1})

        await wait_until(are_under_way, "a share of each caller is under way")
        assert await code_of_answer(shop) == "NOT_FOUND", "what is not computed waits for nothing"
        assert planner.under_way["shop-eu"] == allowed
        planner.may_end.set()
        await asyncio.wait([*explanations, other])
        ended = [cast(RequestError, one.exception()).code for one in (*explanations, other)]
        assert ended == ["NOT_FOUND"] * 6


def test_a_share_is_free_again_however_a_call_ends() -> None:
    share = CallerShare(calls=1, watches=1, computations=1, messages=1, unsent_bytes=10)
    shares, caller = Shares(share), Caller("shop")

    def fail() -> None:
        with (
            shares.counted_in_share(caller, "get", streams=False),
            shares.counted_in_share(caller, "watch", streams=True),
        ):
            with pytest.raises(RequestError, match="1 of caller 'shop' are running"):
                shares.counted_in_share(caller, "list", streams=False).__enter__()
            with shares.counted_in_share(Caller("bank"), "get", streams=False):
                raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()


def test_an_answer_beyond_the_whole_share_is_refused_also_if_it_is_the_only_one() -> None:
    shares, caller = (
        Shares(CallerShare(calls=1, watches=1, computations=1, messages=1, unsent_bytes=10)),
        Caller("shop"),
    )
    with pytest.raises(RequestError, match="list: an answer of 11 bytes: expected at most 10"):
        shares.counted_unsent_answer(caller, "list", 11).__enter__()
    with shares.counted_unsent_answer(caller, "list", 10), pytest.raises(RequestError, match="have not taken 10 bytes"):
        shares.counted_unsent_answer(caller, "list", 1).__enter__()
    with shares.counted_unsent_answer(caller, "list", 10):
        pass


async def test_who_calls_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    settings = RpcSettings(port=0, requests_per_second=0.5, requests_burst=1, stop_seconds=0.1)
    async with RpcServer(Planner(), settings) as server, aio.insecure_channel(server.address) as channel:  # type: ignore[arg-type]
        ask = channel.unary_unary(PLANNER.calls["get"].path)
        answers = []
        for _ in range(2):
            with pytest.raises(aio.AioRpcError) as refused:
                await ask(b"")
            answers.append((refused.value.code().name, dict(refused.value.trailing_metadata() or ())))
    (first, _), (second, trailer) = answers
    assert (first, second) == ("NOT_FOUND", "RESOURCE_EXHAUSTED")
    assert 0 < int(str(trailer[PUSHBACK_TRAILER])) <= 2000


@pytest.mark.parametrize("known", [True, False])
async def test_a_batch_takes_as_many_calls_as_it_has_items(tmp_path: Path, known: bool) -> None:
    """Where nobody is asked who they are, there is nobody whose share it could take."""
    file = tmp_path / "callers.yaml"
    write_callers_file(file, shop="*")
    bounds = RpcSettings(port=0, requests_per_second=0.5, requests_burst=5, stop_seconds=0.1)
    settings = replace(bounds, callers=str(file)) if known else bounds
    async with RpcServer(Planner(), settings) as server, aio.insecure_channel(server.address) as channel:  # type: ignore[arg-type]
        call, answers = PLANNER.calls["plan_batch"], []
        ask, message_bytes = channel.unary_unary(call.path), request_bytes(batch_of_items(4), call.request_message())
        for _ in range(2):
            with pytest.raises(aio.AioRpcError) as refused:
                await ask(message_bytes, metadata=(("authorization", "Bearer shop"),))
            answers.append((refused.value.code().name, str(refused.value.details())))
    (first, _), (second, text) = answers
    assert (first, second) == ("INTERNAL", "RESOURCE_EXHAUSTED" if known else "INTERNAL")  # It has no such method.
    assert ("4 at once, of more than 0.5 calls a second" in text) == known


async def test_a_call_is_traced_once_its_caller_is_known(tmp_path: Path) -> None:
    """Strangers decide nothing of what is traced, whatever their headers say."""
    file, exporter = tmp_path / "callers.yaml", InMemorySpanExporter()
    write_callers_file(file, known="*")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use_provider(provider)
    try:
        settings = RpcSettings(port=0, callers=str(file), stop_seconds=0.1)
        async with RpcServer(Planner(), settings) as server, aio.insecure_channel(server.address) as channel:  # type: ignore[arg-type]
            ask = channel.unary_unary(PLANNER.calls["get"].path)
            for token in ("stranger", "known", "stranger"):
                parent = ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01")
                with pytest.raises(aio.AioRpcError):
                    await ask(b"", metadata=(("authorization", f"Bearer {token}"), parent))
    finally:
        tracing.shutdown()
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert span.context.trace_id == int("a" * 32, 16)
    assert dict(span.attributes or {})["rpc.response.status_code"] == "NOT_FOUND"


async def test_strangers_are_told_neither_version_nor_leader(tmp_path: Path) -> None:
    file = tmp_path / "callers.yaml"
    write_callers_file(file, known="*")
    settings = RpcSettings(port=0, callers=str(file), stop_seconds=0.1)
    led = Planner("planner-2:7400")
    async with RpcServer(led, settings) as server, aio.insecure_channel(server.address) as channel:  # type: ignore[arg-type]
        ask, told = channel.unary_unary(PLANNER.calls["get"].path), {}
        for token in ("known", "stranger"):
            with pytest.raises(aio.AioRpcError) as refused:
                await ask(b"", metadata=(("authorization", f"Bearer {token}"),))
            trailer = dict(refused.value.trailing_metadata() or ())
            told[token] = trailer.keys() & {VERSION_TRAILER, LEADER_TRAILER}
    assert told == {"known": {VERSION_TRAILER, LEADER_TRAILER}, "stranger": set()}
