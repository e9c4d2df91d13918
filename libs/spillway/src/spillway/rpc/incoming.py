"""Reads a call at the server: its message, its request, and its trace."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from google.protobuf.message import DecodeError, Message
from grpc import aio

from spillway import tracing
from spillway.api import RequestError
from spillway.bus import Headers
from spillway.reasons import TOO_MANY_RUN
from spillway.rpc.calls import Call
from spillway.wire import TooManyEntries


async def receive_message(
    verb: str, message: str, context: Any, place: asyncio.Semaphore, wait_seconds: float, message_seconds: float
) -> bytes:
    """Reads the message of a call, once it holds a place. Nothing of it was read before.

    verb: the call's name in texts. message: the name of the message's type.
    wait_seconds: the longest time until it has a place. message_seconds: the longest time from then until the message
    is whole. Raises RESOURCE_EXHAUSTED without a place in time, DEADLINE_EXCEEDED without a whole message in time, and
    INVALID_ARGUMENT when there is no message.
    """
    try:
        async with asyncio.timeout(wait_seconds):
            await place.acquire()
    except TimeoutError:
        text = f"{verb}: other messages of this caller have been arriving for {wait_seconds:g} s"
        raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_RUN) from None
    try:
        async with asyncio.timeout(message_seconds):
            message_bytes = await context.read()
    except TimeoutError:
        text = f"{verb}: the request has not arrived within {message_seconds:g} s"
        raise RequestError("DEADLINE_EXCEEDED", text) from None
    finally:
        place.release()
    if message_bytes is aio.EOF:
        raise RequestError("INVALID_ARGUMENT", f"request: no message came: expected a {message}")
    return cast(bytes, message_bytes)


def parse_request(call: Call, message_bytes: bytes, entries_max: int, check: Callable[[Message], object]) -> Any:
    """Returns the request in a message. Raises INVALID_ARGUMENT for another message, or for too many entries.

    check: as in Call.read_request; it may raise another RequestError.
    """
    try:
        return call.read_request(message_bytes, entries_max, check)
    except DecodeError as error:
        raise RequestError("INVALID_ARGUMENT", f"request: not a {call.request.__name__}: {error}") from error
    except TooManyEntries as error:
        raise RequestError("INVALID_ARGUMENT", str(error)) from error


def trace_headers_of_call(context: Any) -> Headers:
    if not tracing.is_on():
        return ()
    found = context.invocation_metadata() or ()
    return tracing.select_trace_headers(
        (key, value.encode() if isinstance(value, str) else value) for key, value in found
    )
