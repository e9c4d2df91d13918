"""Traces across gRPC and Kafka in OpenTelemetry's conventions. Without an endpoint nothing is done at all.

A trace begins with a call, with an observation of a cluster, or with a decision that time alone causes. These places
call `begin_or_continue_trace`, or `record_decision` without a parent. All other places call `continue_trace`, which
does nothing without a recorded trace. So a trace that is not sampled costs only its first span. Spans contain no text
of an error, a manifest or an answer, because such a text may contain a secret.
"""

from __future__ import annotations  # Otherwise a command would import all events for one question.

import time
from collections.abc import Collection, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, cast

from msgspec import Meta

from spillway.settings import setting

if TYPE_CHECKING:
    from types import ModuleType

    from opentelemetry.trace import Span, Tracer

    from spillway.bus import Headers

CLIENT: Final = "CLIENT"
CONSUMER: Final = "CONSUMER"
INTERNAL: Final = "INTERNAL"
PRODUCER: Final = "PRODUCER"
SERVER: Final = "SERVER"
"""The kinds of spans, by OpenTelemetry's names."""
Attributes = Mapping[str, str | int | float | bool]
K = TypeVar("K", bound=Hashable)
NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
FIELDS: Final = (PARENT, STATE)
PARENT_BYTES: Final = 55
"""The size in bytes of a traceparent of version 00. Source: W3C Trace Context, section 3.2.2."""
STATE_BYTES_MAX: Final = 512
"""The most bytes of a tracestate: W3C asks to carry as many. Source: W3C Trace Context, section 3.3.1.5."""
FAULTS: Final = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""gRPC codes that mark a server's span as failed. The other codes are caused by the caller."""

ORIGINS_MAX: Final = 10_000

_SHUTDOWN_SECONDS = 2

_provider: Any = None
_tracer: Tracer | None = None
_spans: ModuleType
"""spillway.spans, which is imported once tracing is on. Read it only where _tracer is set."""


class _NoSpan:
    """The span where tracing is off. It has those of a span's methods that this module's callers use."""

    def set_attribute(self, name: str, value: str | int | float | bool) -> None:
        pass


_NO_SPAN: Final = cast("Span", _NoSpan())
_OFF: AbstractContextManager[Span] = nullcontext(_NO_SPAN)


@dataclass(frozen=True, slots=True)
class TraceSettings:
    otlp_endpoint: str = setting(
        "", "host:port of the OpenTelemetry collector (gRPC) that receives traces; empty: no traces"
    )
    trace_ratio: Annotated[float, Meta(ge=0, le=1)] = setting(0.01, "share of requests that are traced, from 0 to 1")


def configure(service: str, settings: TraceSettings, instance: str = "") -> None:
    """Exports spans to settings.otlp_endpoint. Without an endpoint tracing stays off. Called once a process."""
    if not settings.otlp_endpoint or _provider is not None:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    named = {"service.namespace": "spillway", "service.name": f"spillway-{service}", "service.instance.id": instance}
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.trace_ratio)),
        resource=Resource.create({name: value for name, value in named.items() if value}),
        shutdown_on_exit=False,
    )
    insecure = not settings.otlp_endpoint.startswith("https://")
    exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint, insecure=insecure, timeout=_SHUTDOWN_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    use_provider(provider)


def use_provider(provider: Any) -> None:
    """Sends the spans of this process to a TracerProvider until shutdown."""
    global _provider, _tracer, _spans
    from spillway import spans

    _provider, _tracer, _spans = provider, provider.get_tracer("spillway"), spans


def shutdown() -> None:
    """Sends the remaining spans and turns tracing off. Blocks for about two seconds at most; call it in a thread."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        provider.shutdown()


def is_on() -> bool:
    return _tracer is not None


def clock_ns() -> int:
    """Returns the current Unix time in nanoseconds, for `record_decision`; 0 when tracing is off."""
    return 0 if _tracer is None else time.time_ns()


# ── Headers between processes ─────────────────────────────────────────────────────────────────────────────────────────


def current_span() -> Span:
    """Returns the current span. If there is none, returns a span on which all calls have no effect."""
    return _NO_SPAN if _tracer is None else _spans.current_span()


def current_trace_headers() -> Headers:
    """Returns the headers with which a reader continues the current span; empty if it is not recorded."""
    return () if _tracer is None else _spans.headers_of_span(_spans.current_span())


def select_trace_headers(found: Iterable[tuple[str, bytes]]) -> Headers:
    """Returns the trace headers from all headers of a record or a call; empty when tracing is off.

    Of several headers of one name the first counts. Without a traceparent of the right length there is no trace, and a
    longer tracestate than W3C asks to carry is left out: anyone may write headers, and they are kept for each workload.
    """
    if _tracer is None:
        return ()
    by_name: dict[str, bytes] = {}
    for name, value in found:
        if name in FIELDS:
            by_name.setdefault(name, value)
    parent, state = by_name.get(PARENT, b""), by_name.get(STATE, b"")
    if len(parent) != PARENT_BYTES:
        return ()
    return ((PARENT, parent), (STATE, state)) if 0 < len(state) <= STATE_BYTES_MAX else ((PARENT, parent),)


class Origins(Generic[K]):
    """The trace from which the later work on each key goes on. Only the newest ORIGINS_MAX traces are kept."""

    def __init__(self) -> None:
        self._headers: dict[K, Headers] = {}

    def note_origin(self, key: K, found: Headers) -> None:
        """Stores the trace of a key, for the decision that follows from it. Empty headers change nothing."""
        if found:
            self._headers.pop(key, None)
            self._headers[key] = found
            if len(self._headers) > ORIGINS_MAX:
                del self._headers[next(iter(self._headers))]

    def find_origin(self, key: K) -> Headers:
        return self._headers.get(key, ())

    def take_origin(self, key: K) -> Headers:
        return self._headers.pop(key, ())


# ── Spans ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def continue_trace(
    name: str, kind: str = INTERNAL, attributes: Attributes = NO_ATTRIBUTES, parent: Headers = ()
) -> AbstractContextManager[Span]:
    """Opens a span in the parent's trace, or else in the current trace. Does nothing if there is none."""
    if _tracer is None or not (parent or _spans.current_span().is_recording()):
        return _OFF
    return _started_span(_tracer, name, kind, attributes, parent)


def begin_or_continue_trace(
    name: str, kind: str, attributes: Attributes = NO_ATTRIBUTES, parent: Headers = ()
) -> AbstractContextManager[Span]:
    """Opens a span as `continue_trace` does. If there is no trace, a new one begins."""
    # In a trace that was not sampled no new one begins.
    if _tracer is None or (not parent and _spans.is_trace_not_sampled()):
        return _OFF
    return _started_span(_tracer, name, kind, attributes, parent)


def processing_span(topic: str, reader: str, attributes: Attributes, parent: Headers) -> AbstractContextManager[Span]:
    """Opens a span for a reader's work on records of a topic.

    parent: the trace headers of the newest record; without them no span is opened.
    """
    if not parent:
        return _OFF
    named = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": reader,
    }
    return continue_trace(f"process {topic}", CONSUMER, {**named, **attributes}, parent)


def record_decision(
    name: str, parent: Headers | None, started_ns: int, attributes: Attributes = NO_ATTRIBUTES
) -> Headers:
    """Records a decision that began at started_ns as a span. Returns the headers for the records of the decision.

    parent: the trace headers of the input; if they are empty, nothing is recorded. None: a new trace begins here.
    """
    if _tracer is None or parent == ():
        return ()
    named = {"messaging.system": "kafka", "messaging.operation.type": "create", "messaging.operation.name": "decide"}
    recorded: Headers = _spans.record_span(_tracer, name, PRODUCER, {**named, **attributes}, parent or (), started_ns)
    return recorded


def sending_span(
    topics: Collection[str], records: int, client: str, traces: Collection[Headers], *, goes_on: bool
) -> AbstractContextManager[Span]:
    """Opens a span for one write of several records. Its parent is the first trace; it has links to the others.

    records: their number. goes_on: if no record has a trace, the span continues the current trace, if any.
    """
    # Equal traces count once. If no record has a trace, `first` is empty.
    first, *others = dict.fromkeys(found for found in traces if found) or ((),)
    if _tracer is None or not (first or goes_on):
        return _OFF
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.batch.message_count": records,
        "messaging.client.id": client,
    }
    name = "send"
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topic = next(iter(topics))
        name = f"send {topic}"
    if not first:
        return continue_trace(name, PRODUCER, attributes)
    # The records have creation spans of their own. By OpenTelemetry's conventions, the kind is then CLIENT.
    return _started_span(_tracer, name, CLIENT, attributes, first, (first, *others))


def rpc_attributes(path: str) -> Attributes:
    """Returns the attributes of a call. path: /package.Service/Method."""
    return {"rpc.system.name": "grpc", "rpc.method": path[1:]}


def note_rpc_ended(one: Span, code: str, *, failed: bool) -> None:
    one.set_attribute("rpc.response.status_code", code)
    if failed:
        mark_failed(one, code)


def mark_failed(one: Span, error: str) -> None:
    """Marks a span as failed. error: one of a fixed set of names, never the text of an error."""
    if one is not _NO_SPAN:
        _spans.mark_failed(one, error)


def _started_span(
    tracer: Tracer,
    name: str,
    kind: str,
    attributes: Attributes,
    parent: Headers,
    linked: Collection[Headers] = (),
) -> AbstractContextManager[Span]:
    found: AbstractContextManager[Span] = _spans.started_span(tracer, name, kind, attributes, parent, linked)
    return found
