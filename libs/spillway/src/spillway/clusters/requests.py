"""Requests to one API: repeated while that can help, limited in time, with a named error for every bad answer."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec

from spillway import tracing
from spillway.clusters import answers
from spillway.clusters.answers import T
from spillway.clusters.errors import (
    AlreadyExists,
    ClusterUnreachable,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Refused,
)
from spillway.clusters.settings import ClusterApiSettings
from spillway.clusters.transport import Response, Transport, TransportStatus
from spillway.kubernetes import objects
from spillway.kubernetes.objects import JSON, Kind, Manifest

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 400, 401, 403, 404, 409, 410, 429
SERVER_ERRORS: Final = 500  # This status and all above it.


class Requests:
    def __init__(self, transport: Transport, name: str, settings: ClusterApiSettings, random: Random) -> None:
        self.name, self.settings, self.random = name, settings, random
        self._transport = transport

    async def watch_chunks(self, kind: Kind, params: Mapping[str, str], version: str) -> AsyncGenerator[bytes, None]:
        """Yields the chunks of one watch until the server ends it.

        Raises ClusterUnreachable after a silence that is too long.
        """
        settings, path = self.settings, kind.path()
        seconds = self.random.randint(settings.watch_shortest_seconds, settings.watch_longest_seconds)
        bounds = {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), "resourceVersion": version}
        chunks = self._transport.stream(path, {**params, "watch": "true", **bounds}, kind.accept_header())
        try:
            while True:
                async with asyncio.timeout(settings.watch_idle_seconds):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
        except TimeoutError as error:
            detail = f"the watch of {path} said nothing for {settings.watch_idle_seconds} s"
            raise ClusterUnreachable(self.name, "timeout", detail) from error
        except TransportStatus as answer:
            self.read_body(Response(answer.status, answer.body))
            raise self._garbage_error(Response(answer.status, answer.body)) from answer
        finally:
            await chunks.aclose()

    async def _send_request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        """Returns the answer. Repeats the request while the server answers that it cannot serve it now (429, 5xx)."""
        if not tracing.is_on():
            return await self._send_with_retries(method, path, params, body, content_type, accept)
        about = {"http.request.method": method, "url.path": path, "k8s.cluster.name": self.name}
        with tracing.continue_trace(method, tracing.CLIENT, about) as span:
            response = await self._send_with_retries(method, path, params, body, content_type, accept)
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= BAD_REQUEST:
                tracing.mark_failed(span, str(response.status))
            return response

    async def _send_with_retries(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        accept: str,
    ) -> Response:
        attempt = 1
        while True:
            call = self._transport.request(method, path, params, body, content_type, accept)
            response = await self._await_response(call, self.settings.request_timeout_seconds)
            # A write is repeated only after 429: after a server error it may have been done.
            passing = response.status == TOO_MANY or (method == "GET" and response.status >= SERVER_ERRORS)
            if not passing or attempt >= self.settings.read_attempts:
                return response
            await asyncio.sleep(self.settings.pause_seconds(attempt, self.random))
            attempt += 1

    async def _await_response(self, call: Coroutine[Any, Any, Response], seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise ClusterUnreachable(self.name, "timeout", f"no answer within {seconds} s") from error

    def _garbage_error(self, response: Response) -> ClusterUnreachable:
        return ClusterUnreachable(self.name, "garbage", str(TransportStatus(response.status, response.body)))

    def read_body(self, response: Response) -> bytes:
        """Returns the body of an answer to a read. Raises Expired or ClusterUnreachable for any status but 2xx."""
        # A server that was restored from a backup answers 504 to a version that it has not reached again.
        late = response.status >= SERVER_ERRORS and answers.read_status(response.body).names_a_later_version
        if response.status == GONE or late:
            raise Expired(self.name, "server", answers.read_status(response.body).message)
        self._require_working_server(response)
        if response.status == FORBIDDEN:
            raise ClusterUnreachable(self.name, "forbidden", answers.read_status(response.body).message)
        if not 200 <= response.status < 300:
            raise self._garbage_error(response)
        return response.body

    def _decode_written_object(self, response: Response, kind: Kind) -> Manifest:
        self._decode_write_answer(response)
        return self.decode_manifest(kind, response.body)

    def _decode_write_answer(self, response: Response) -> Manifest:
        if not 200 <= response.status < 300:
            self.raise_refusal(response)
        self.check_size(response.body)
        return self.decode_json(answers.MANIFEST, response.body)

    def decode_manifest(self, kind: Kind, body: bytes | msgspec.Raw) -> Manifest:
        """Returns a whole object with the types of its kind: readers use its fields without further checks."""
        self.check_size(body)
        self.decode_json(objects.object_decoder(kind), body)
        return self.decode_json(answers.MANIFEST, body)

    def check_size(self, body: bytes | msgspec.Raw) -> None:
        """Raises ClusterUnreachable for an object of more than object_bytes_max. Call it before decoding."""
        if memoryview(body).nbytes > self.settings.object_bytes_max:
            detail = f"an object of more than object_bytes_max ({self.settings.object_bytes_max})"
            raise ClusterUnreachable(self.name, "garbage", detail)

    def raise_refusal(self, response: Response) -> NoReturn:
        """Raises the error for a bad answer: Conflict, Refused, Forbidden, ClusterUnreachable and so on."""
        self._require_working_server(response)
        status = answers.read_status(response.body)
        if status.kind != "Status":
            raise self._garbage_error(response)
        if response.status == CONFLICT or status.names_another_uid:
            raise (AlreadyExists if status.reason == "AlreadyExists" else Conflict)(status.reason, status.message)
        if status.is_about_rights:
            raise Forbidden(self.name, status.message)
        raise (NotFound if response.status == NOT_FOUND else Refused)(response.status, status.reason, status.message)

    def _require_working_server(self, response: Response) -> None:
        if response.status == UNAUTHORIZED:
            raise ClusterUnreachable(self.name, "unauthorized", answers.read_status(response.body).message)
        if response.status == TOO_MANY or response.status >= SERVER_ERRORS:
            raise ClusterUnreachable(self.name, "server", str(TransportStatus(response.status, response.body)))

    def _is_object_absent(self, response: Response) -> bool:
        """Returns whether a 404 comes from the Kubernetes API itself and means that the object is absent.

        A proxy may also answer 404. That must not be taken for a deleted object.
        """
        return response.status == NOT_FOUND and answers.read_status(response.body).kind == "Status"

    def decode_json(self, decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
        try:
            return decoder.decode(body)
        except answers.UNREADABLE as error:  # The error's text quotes nothing of the body, which may contain a secret.
            raise ClusterUnreachable(self.name, "garbage", str(error)) from error
