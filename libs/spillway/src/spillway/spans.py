"""Spans of OpenTelemetry, for tracing.py. It is imported only once tracing is on: loading it takes a command 25 ms."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spillway.bus import Headers

_PROPAGATOR: Final = TraceContextTextMapPropagator()


def current_span() -> Span:
    return trace.get_current_span()


def is_trace_not_sampled() -> bool:
    """Returns whether the current span belongs to a trace that was not sampled: it is valid and not recorded."""
    current = trace.get_current_span()
    return current is not INVALID_SPAN and not current.is_recording()


def headers_of_span(span: Span) -> Headers:
    """Returns the headers with which a reader continues a span; empty if it is not recorded."""
    if not span.get_span_context().trace_flags.sampled:
        return ()
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return tuple((name, value.encode()) for name, value in carrier.items())


def context_of_headers(found: Headers) -> Context:
    """Returns the context of trace headers; without headers an empty one, in which a new trace begins."""
    return _PROPAGATOR.extract({name: value.decode("ascii", "replace") for name, value in found}, Context())


def record_span(
    tracer: Tracer,
    name: str,
    kind: str,
    attributes: Mapping[str, str | int | float | bool],
    parent: Headers,
    began_ns: int,
) -> Headers:
    """Records a span from began_ns to now. Returns the headers with which others continue it."""
    one = tracer.start_span(name, context_of_headers(parent), SpanKind[kind], attributes, start_time=began_ns)
    one.end()
    return headers_of_span(one)


def mark_failed(one: Span, error: str) -> None:
    one.set_attribute("error.type", error)
    one.set_status(Status(StatusCode.ERROR))


@contextmanager
def started_span(
    tracer: Tracer,
    name: str,
    kind: str,
    attributes: Mapping[str, str | int | float | bool],
    parent: Headers = (),
    linked: Collection[Headers] = (),
) -> Iterator[Span]:
    """Opens a span in the parent's trace, or else in the current one. linked: headers of spans that it has links to.

    A span that ends by an error is marked with the error's class.
    """
    links = [Link(trace.get_current_span(context_of_headers(found)).get_span_context()) for found in linked]
    started = tracer.start_as_current_span(
        name,
        context_of_headers(parent) if parent else None,
        SpanKind[kind],
        attributes,
        links,
        record_exception=False,
        set_status_on_exception=False,
    )
    with started as one:
        try:
            yield one
        except BaseException as error:
            mark_failed(one, type(error).__name__)
            raise
