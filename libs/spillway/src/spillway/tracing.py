"""Traces across gRPC and Kafka: the OpenTelemetry API, and nothing at all done until an endpoint is configured."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Headers = Iterable[tuple[str, bytes]]


class TraceSettings(Protocol):
    @property
    def otlp_endpoint(self) -> str: ...

    @property
    def trace_ratio(self) -> float: ...


class _HeaderSetter(Setter[list[tuple[str, bytes]]]):
    def set(self, carrier: list[tuple[str, bytes]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [value.decode("ascii", "replace") for name, value in carrier if name == key]
        return found or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_PROPAGATOR = TraceContextTextMapPropagator()
_SETTER = _HeaderSetter()
_GETTER = _HeaderGetter()
_OFF: AbstractContextManager[None] = nullcontext()
_SHUTDOWN_SECONDS = 2

_provider: Any = None
_tracer: trace.Tracer | None = None


def configure(service: str, settings: TraceSettings) -> None:
    """Exports spans to settings.otlp_endpoint; an empty one leaves everything off. Called once, by process.run."""
    global _provider, _tracer  # noqa: PLW0603 - one tracer a process, as in OpenTelemetry itself
    if not settings.otlp_endpoint or _provider is not None:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    _provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.trace_ratio)),
        resource=Resource.create({"service.name": f"spillway-{service}"}),
        shutdown_on_exit=False,
    )
    insecure = not settings.otlp_endpoint.startswith("https://")
    exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint, insecure=insecure, timeout=_SHUTDOWN_SECONDS)
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("spillway")


def shutdown() -> None:
    """Sends what is left and turns tracing off. Blocks for about two seconds at most; call it in a thread."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        provider.shutdown()


def is_on() -> bool:
    return _tracer is not None


def inject() -> list[tuple[str, bytes]]:
    """The headers that carry the current span to whoever reads them; none when off."""
    if _tracer is None:
        return []
    headers: list[tuple[str, bytes]] = []
    _PROPAGATOR.inject(headers, setter=_SETTER)
    return headers


def extract(headers: Headers) -> Context | None:
    """The context that came with a record or a request, for span(); None when off or when none came."""
    if _tracer is None:
        return None
    carrier = tuple(headers)
    if not any(name == "traceparent" for name, _ in carrier):
        return None
    return _PROPAGATOR.extract(carrier, getter=_GETTER)


def span(
    name: str, context: Context | None = None, **attributes: str | int | float | bool
) -> AbstractContextManager[None]:
    """Times a piece of work under the current span, or under a context from extract(). Costs next to nothing when off.

    One per request, batch or decision; never one per telemetry record (a recorded span costs about 30 µs).
    """
    return _OFF if _tracer is None else _span(_tracer, name, context, attributes)


@contextmanager
def _span(
    tracer: trace.Tracer, name: str, context: Context | None, attributes: dict[str, str | int | float | bool]
) -> Iterator[None]:
    with tracer.start_as_current_span(name, context=context, attributes=attributes):
        yield
