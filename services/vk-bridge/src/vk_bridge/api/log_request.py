"""Reads the query of a log request, as an API server sends it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from spillway.clusters.api import LogOptions

FALSE: Final = ("false", "0")
DIGITS_MAX: Final = 18
"""The most digits of a number, so that it fits an int64."""


def read_log_options(container: str, query: Mapping[str, str], bytes_max: int) -> LogOptions:
    """Returns the options of a log request. Raises ValueError with the field, its value and what was expected.

    bytes_max: the limit that applies to every request.
    """
    since_seconds, since_time = _read_number(query, "sinceSeconds", 1), query.get("sinceTime", "")
    if since_seconds is not None and since_time:
        raise ValueError("sinceSeconds and sinceTime: expected at most one of them")
    if since_time and not _is_time(since_time):
        raise ValueError(f"sinceTime: {since_time[:64]!r}: expected a time with its zone, as 2026-11-22T09:00:00Z")
    if query.get("stream", "All") != "All":
        raise ValueError(
            f"stream: {query['stream'][:64]!r}: expected All, because a container's two streams come as one"
        )
    limit = _read_number(query, "limitBytes", 1)
    return LogOptions(
        container=container,
        follow=_read_flag(query, "follow"),
        previous=_read_flag(query, "previous"),
        timestamps=_read_flag(query, "timestamps"),
        tail_lines=_read_number(query, "tailLines", 0),
        since_seconds=since_seconds,
        since_time=since_time,
        limit_bytes=min(limit or bytes_max, bytes_max),
    )


def _read_flag(query: Mapping[str, str], name: str) -> bool:
    """Returns a flag as Kubernetes reads it: it is set if the parameter is present and is not "false" or "0"."""
    return name in query and query[name].lower() not in FALSE


def _read_number(query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    if not is_number or int(text) < least:
        raise ValueError(f"{name}: {text[:64]!r}: expected a whole number, {least} or more")
    return int(text)


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
