"""Traces: what begins one, what goes on with it, what it never costs; and that a real process sends them by OTLP."""

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from otlp_receiver import running_receiver

from spillway import tracing
from spillway.bus import Headers

REMOTE = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
NOT_SAMPLED = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),)


def span_names(exporter: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exporter.get_finished_spans()]


@pytest.fixture
def spans(request: pytest.FixtureRequest) -> Iterator[InMemorySpanExporter]:
    """Begins every trace, or by parameter none."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(ParentBased(getattr(request, "param", ALWAYS_ON)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use_provider(provider)
    yield exporter
    tracing.shutdown()


def test_off_nothing_begins_and_nothing_is_carried() -> None:
    with tracing.begin_or_continue_trace("call", tracing.SERVER, parent=REMOTE) as span:
        span.set_attribute("ignored", True)
        assert tracing.current_trace_headers() == ()
    assert tracing.select_trace_headers(REMOTE) == ()
    assert tracing.record_decision("decide", None, 0) == ()
    assert tracing.clock_ns() == 0


def test_on_the_context_goes_along_and_comes_from_elsewhere(spans: InMemorySpanExporter) -> None:
    with tracing.begin_or_continue_trace(
        "call", tracing.SERVER, parent=tracing.select_trace_headers((("other", b"x"), *REMOTE))
    ):
        made = tracing.record_decision("decide", tracing.current_trace_headers(), tracing.clock_ns())
        with tracing.continue_trace("write", parent=made):
            inner = tracing.current_trace_headers()
    assert [name for name, _ in made] == ["traceparent"]
    assert {value.split(b"-")[1] for _, value in (*made, *inner)} == {REMOTE[0][1].split(b"-")[1]}
    assert span_names(spans) == ["decide", "write", "call"]


PARENT = REMOTE[0]
STATE = ("tracestate", b"a=1")


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ((PARENT, STATE), (PARENT, STATE)),
        ((PARENT, ("tracestate", b"a" * tracing.STATE_BYTES_MAX)), (PARENT, ("tracestate", b"a" * 512))),
        ((PARENT, ("tracestate", b"a" * (tracing.STATE_BYTES_MAX + 1))), (PARENT,)),
        ((PARENT, ("tracestate", b"")), (PARENT,)),
        ((*REMOTE * 1000, *(STATE,) * 1000), (PARENT, STATE)),
        ((("traceparent", PARENT[1] + b"-"), STATE), ()),
        ((("traceparent", PARENT[1][:-1]), STATE), ()),
        ((STATE,), ()),
    ],
)
def test_of_the_headers_of_others_no_more_is_kept_than_w3c_asks_for(
    spans: InMemorySpanExporter, found: Headers, kept: Headers
) -> None:
    assert tracing.select_trace_headers(found) == kept


def test_only_a_beginning_begins(spans: InMemorySpanExporter) -> None:
    """A decision of which nobody knows a cause may begin a trace; one whose cause has none may not."""
    with tracing.continue_trace("write"):
        assert tracing.current_trace_headers() == ()
    with tracing.processing_span("t", "planner", {}, ()):
        assert tracing.current_trace_headers() == ()
    assert tracing.record_decision("decide", (), tracing.clock_ns()) == ()
    assert tracing.record_decision("afterwards", None, tracing.clock_ns()) != ()
    assert span_names(spans) == ["afterwards"]


@pytest.mark.parametrize("spans", [ALWAYS_OFF], indirect=True)
def test_what_is_not_sampled_carries_no_header_and_nothing_goes_on_with_it(spans: InMemorySpanExporter) -> None:
    for parent in ((), NOT_SAMPLED):
        with tracing.begin_or_continue_trace("call", tracing.SERVER, parent=parent):
            assert tracing.current_trace_headers() == ()
            with tracing.begin_or_continue_trace("another", tracing.CLIENT), tracing.continue_trace("write"):
                assert tracing.current_trace_headers() == ()
    assert tracing.record_decision("decide", None, tracing.clock_ns()) == ()
    assert span_names(spans) == []


def test_an_error_is_named_by_its_kind_and_its_text_stays_out(spans: InMemorySpanExporter) -> None:
    def fail() -> None:
        with tracing.begin_or_continue_trace("call", tracing.SERVER):
            raise ValueError("password: hunter2")

    with pytest.raises(ValueError, match="hunter2"):
        fail()
    (span,) = spans.get_finished_spans()
    assert "hunter2" not in span.to_json()
    assert {**(span.attributes or {})} == {"error.type": "ValueError"}


def test_many_decisions_in_one_write_are_linked(spans: InMemorySpanExporter) -> None:
    first, second = (tracing.record_decision(name, None, tracing.clock_ns()) for name in ("a", "b"))
    with tracing.sending_span({"t"}, 3, "planner-1", [first, second, first], goes_on=False):
        pass
    a, b, write = spans.get_finished_spans()
    assert write.name == "send t"
    assert write.parent is not None
    linked = [write.parent, *(link.context for link in write.links)]
    assert [one.span_id for one in linked] == [one.context.span_id for one in (a, a, b) if one.context is not None]
    with tracing.sending_span({"t"}, 1, "planner-1", (), goes_on=True):
        assert tracing.current_trace_headers() == ()


def test_causes_keep_the_newest_and_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ORIGINS_MAX", 2)
    origins = tracing.Origins[str]()
    for key in ("a", "b", "a", "c"):
        origins.note_origin(key, ((key, b"1"),))
    origins.note_origin("c", ())
    assert [origins.find_origin(key) for key in ("a", "b", "c")] == [(("a", b"1"),), (), (("c", b"1"),)]
    assert (origins.take_origin("c"), origins.take_origin("c")) == ((("c", b"1"),), ())


BODY = """
import sys
from spillway import tracing
from spillway.bus import Headers
from spillway.running.process import run
async def main(process):
    attributes = tracing.rpc_attributes("/spillway.v1.Planner/Apply")
    with tracing.begin_or_continue_trace("call", tracing.SERVER, attributes) as span:
        tracing.record_decision("decide apply", tracing.current_trace_headers(), tracing.clock_ns())
        tracing.note_rpc_ended(span, "OK", failed=False)
sys.exit(run("planner", main))
"""


async def exit_code_of_process(**variables: str) -> int | None:
    environment = {"PATH": os.environ["PATH"], "SPILLWAY_TRACE_RATIO": "1", "SPILLWAY_INSTANCE": "planner-1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BODY, env=environment | variables, stdout=asyncio.subprocess.DEVNULL
    )
    return await asyncio.wait_for(process.wait(), 60)


async def test_a_real_process_sends_its_spans_before_it_ends() -> None:
    with running_receiver() as receiver:
        assert await exit_code_of_process(SPILLWAY_OTLP_ENDPOINT=f"127.0.0.1:{receiver.port}") == 0
    call = next(one for one in receiver.spans if one.name == "call")
    decision = next(one for one in receiver.spans if one.name == "decide apply")
    assert len(receiver.spans) == 2
    assert (call.parent, decision.trace, decision.parent) == ("", call.trace, call.span)
    assert call.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": "spillway.v1.Planner/Apply",
        "rpc.response.status_code": "OK",
    }
    named = {name: call.resource[name] for name in ("service.namespace", "service.name", "service.instance.id")}
    assert tuple(named.values()) == ("spillway", "spillway-planner", "planner-1")


async def test_a_collector_that_is_not_there_keeps_no_process_from_ending() -> None:
    assert await exit_code_of_process(SPILLWAY_OTLP_ENDPOINT="127.0.0.1:1") == 0
