"""The logs of a pod's containers, streamed as they come."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from spillway.clusters.errors import ClusterUnreachable, Refused
from spillway.clusters.requests import TOO_MANY, Requests
from spillway.clusters.transport import Response, Transport, TransportStatus
from spillway.kubernetes.objects import PODS


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Kubernetes' PodLogOptions. Only options that are set are sent. since_time: RFC 3339; not with since_seconds."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    limit_bytes: int | None = None

    def query_parameters(self) -> dict[str, str]:
        given: dict[str, str | bool | int | None] = {
            "container": self.container,
            "follow": self.follow,
            "previous": self.previous,
            "timestamps": self.timestamps,
            "tailLines": self.tail_lines,
            "sinceSeconds": self.since_seconds,
            "sinceTime": self.since_time,
            "limitBytes": self.limit_bytes,
        }
        asked = {name: value for name, value in given.items() if value not in (None, "") and value is not False}
        return {name: "true" if value is True else str(value) for name, value in asked.items()}


class PodLogs:
    """The open logs of one cluster, at most `log_streams_max`, with connections of their own."""

    def __init__(self, requests: Requests, transport: Transport) -> None:
        self._requests = requests
        self._transport = transport
        self._open = 0

    async def read_log_chunks(self, namespace: str, pod: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yields the log in chunks that may end anywhere. Only the current chunk is in memory. Raises Refused."""
        settings = self._requests.settings
        if self._open >= settings.log_streams_max:
            limit = f"{settings.log_streams_max} logs of {self._requests.name} are being read already"
            raise Refused(TOO_MANY, "TooManyRequests", limit)
        self._open += 1
        path = PODS.path(namespace, pod, "log")
        try:
            async with aclosing(self._request_log_chunks(path, options)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except TransportStatus as answer:
            self._requests.raise_refusal(Response(answer.status, answer.body))
        finally:
            self._open -= 1

    async def _request_log_chunks(self, path: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yields the chunks of a log that is being opened, without the empty first one.

        A kubelet sends its answer with the first line. So a log that is followed may be silent for its whole time.
        """
        settings = self._requests.settings
        begin = asyncio.get_running_loop().time()
        end = begin + settings.log_stream_seconds
        async with aclosing(self._transport.stream(path, options.query_parameters())) as chunks:
            try:
                async with asyncio.timeout_at(end if options.follow else begin + settings.request_timeout_seconds):
                    await anext(chunks)
            except TimeoutError as error:
                if options.follow:
                    return
                detail = f"no answer within {settings.request_timeout_seconds} s"
                raise ClusterUnreachable(self._requests.name, "timeout", detail) from error
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    return
                if chunk is None:
                    return
                yield chunk
