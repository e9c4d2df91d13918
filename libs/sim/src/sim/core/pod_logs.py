"""The logs of containers, and the part that a request asks for, in the words of an API server and of a kubelet."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sim.core.errors import bad_request, invalid
from sim.core.kinds import KIND_BY_PLURAL, Object
from sim.core.pods import is_terminal
from sim.core.world import World

LINES_KEPT = 10_000
"""The most lines of one container's log. Older ones are dropped."""
_PODS = KIND_BY_PLURAL["pods"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of one request for a log. since: the time of the first lines, in Unix seconds."""

    container: str
    follow: bool
    timestamps: bool
    tail_lines: int | None
    since: float
    limit_bytes: int | None


@dataclass(slots=True)
class _Book:
    """The lines of one container. forgotten: the number of lines before the first one here."""

    lines: list[tuple[float, str]]
    forgotten: int = 0


class PodLogs:
    """The logs of pods. Each container's log begins with a made line; a log without other lines is not stored."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._books_by_uid: dict[str, dict[str, _Book]] = {}

    def write_lines(self, pod: Object, container: str, text: str) -> None:
        """Writes lines to a container's log, at the present time. Raises KeyError without such a container."""
        if container not in container_names(pod):
            raise KeyError(container)
        book = self._book_of_container(pod, container)
        book.lines += [(self._world.unix_seconds, line) for line in text.splitlines()]
        over = len(book.lines) - LINES_KEPT
        if over > 0:
            del book.lines[:over]
            book.forgotten += over

    def forget_pod(self, uid: str) -> None:
        self._books_by_uid.pop(uid, None)

    def read_lines(self, pod: Object, asked: Asked, position: int | None = None) -> tuple[bytes, int]:
        """Returns the log from a position, and the position after it.

        Without a position it starts where the request asks.
        """
        books = self._books_by_uid.get(pod["metadata"]["uid"], {})
        book = books.get(asked.container) or self._new_book(pod, asked.container)
        lines = book.lines[max(0, (position or 0) - book.forgotten) :]
        if position is None:
            lines = [line for line in lines if line[0] >= asked.since]
            if asked.tail_lines is not None:
                lines = lines[len(lines) - min(asked.tail_lines, len(lines)) :]
        texts = (f"{_timestamp_text(at)} {line}\n" if asked.timestamps else f"{line}\n" for at, line in lines)
        return "".join(texts).encode(), book.forgotten + len(book.lines)

    def _book_of_container(self, pod: Object, container: str) -> _Book:
        books = self._books_by_uid.setdefault(pod["metadata"]["uid"], {})
        return books.setdefault(container, self._new_book(pod, container))

    def _new_book(self, pod: Object, container: str) -> _Book:
        started = (pod["status"] or {}).get("startTime")
        at = datetime.fromisoformat(started).timestamp() if started else self._world.unix_seconds
        return _Book([(at, f"{container} of {pod['metadata']['name']} started")])


def container_names(pod: Object) -> list[str]:
    spec = pod["spec"]
    return [one["name"] for field in ("containers", "initContainers") for one in spec.get(field) or ()]


def parse_log_request(pod: Object, params: Mapping[str, str], now_unix: float) -> Asked:
    """Reads the parameters of a log request. Raises ApiError for a bad value, and for a wrong or missing container."""
    name, containers = pod["metadata"]["name"], container_names(pod)
    container = params.get("container", "")
    if not container:
        own = [one["name"] for one in pod["spec"].get("containers") or ()]
        if len(containers) > 1:
            choice = " ".join(own)
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choice}]")
        container = own[0]
    elif container not in containers:
        raise bad_request(f"container {container} is not valid for pod {name}")
    seconds, since = _parse_number(name, params, "sinceSeconds", 1), _parse_since_time(params.get("sinceTime", ""))
    return Asked(
        container=container,
        follow=params.get("follow") in ("true", "1"),
        timestamps=params.get("timestamps") in ("true", "1"),
        tail_lines=_parse_number(name, params, "tailLines", 0),
        since=since if seconds is None else now_unix - seconds,
        limit_bytes=_parse_number(name, params, "limitBytes", 1),
    )


def check_container_started(pod: Object, asked: Asked, params: Mapping[str, str]) -> None:
    """Raises ApiError 400, in a kubelet's words, for a container that has not started."""
    named = f'container "{asked.container}" in pod "{pod["metadata"]["name"]}"'
    if params.get("previous") in ("true", "1"):
        raise bad_request(f"previous terminated {named} not found")
    if pod["status"].get("phase") != "Running" and not is_terminal(pod):
        raise bad_request(f"{named} is waiting to start: ContainerCreating")


def _parse_number(pod: str, params: Mapping[str, str], field: str, least: int) -> int | None:
    text = params.get(field)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError as error:
        raise bad_request(f"{field}: Invalid value: {text!r}: must be a number") from error
    if value < least:
        why = f"Invalid value: {value}: must be greater than or equal to {least}"
        raise invalid(_PODS, pod, [(field, "FieldValueInvalid", why)])
    return value


def _parse_since_time(text: str) -> float:
    """Returns Unix seconds; 0 for an empty text."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError as error:
        raise bad_request(f"sinceTime: Invalid value: {text!r}: must be a time") from error


def _timestamp_text(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
