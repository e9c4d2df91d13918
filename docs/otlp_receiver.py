"""A receiver of traces over gRPC (OTLP) that keeps the spans. It is the part of an OpenTelemetry collector we need."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SERVICE: Final = "opentelemetry.proto.collector.trace.v1.TraceService"
THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Received:
    """One span. parent: empty for the first span of a trace. Times are Unix nanoseconds; ids are hexadecimal."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[str, ...]

    @property
    def service_name(self) -> str:
        return str(self.resource["service.name"])


@dataclass(slots=True)
class Receiver:
    """A running receiver. port: its port on loopback. spans: the received spans, in the order of arrival."""

    port: int
    spans: list[Received] = field(default_factory=list)


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Runs a receiver on a free port until the block ends."""
    server = grpc.server(ThreadPoolExecutor(THREADS))
    receiver = Receiver(server.add_insecure_port("127.0.0.1:0"))

    def export(request: ExportTraceServiceRequest, _: Any) -> ExportTraceServiceResponse:
        receiver.spans += _spans_of(request)
        return ExportTraceServiceResponse()

    method = grpc.unary_unary_rpc_method_handler(
        export, ExportTraceServiceRequest.FromString, ExportTraceServiceResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": method}),))
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for of_process in request.resource_spans:
        resource = _value_by_key(of_process.resource.attributes)
        for one in (span for scope in of_process.scope_spans for span in scope.spans):
            yield Received(
                trace=one.trace_id.hex(),
                span=one.span_id.hex(),
                parent=one.parent_span_id.hex(),
                name=one.name,
                kind=one.kind,
                begin_ns=one.start_time_unix_nano,
                end_ns=one.end_time_unix_nano,
                attributes=_value_by_key(one.attributes),
                resource=resource,
                links=tuple(link.span_id.hex() for link in one.links),
            )


def _value_by_key(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
