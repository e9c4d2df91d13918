"""The answers of an API server: pages of a list, events of a watch, and error texts. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from msgspec import DecodeError, Meta, Raw, Struct, field, json
from msgspec.structs import replace

from spillway.kubernetes.objects import Kind, Manifest
from spillway.texts import cut_text

T = TypeVar("T")
NO_RIGHT: Final = re.compile(r": User .* cannot [a-z]+ resource ")
SAID_CHARACTERS_MAX: Final = 4_000
"""The most characters kept of a server's reason, and of its message. Any webhook may refuse with megabytes of text.
Records quote that text and have room for 2 MiB."""
VERSION_CHARACTERS_MAX: Final = 1_000
"""The most characters of a resourceVersion. Every API server that we have seen uses a number of 64 bits. We send it
back in a URL."""
Version = Annotated[str, Meta(max_length=VERSION_CHARACTERS_MAX)]
Token = Annotated[str, Meta(max_length=16_384)]
"""A continue token of a list, with a bounded length. Kubernetes puts a key of etcd into it. We send it back in a
URL."""
VALUE_BYTES: Final = 50
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
UNREADABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: Version = ""
    continue_: Token = field(default="", name="continue")
    remaining_item_count: Count | None = None


class ListPage(Struct, Generic[T], frozen=True, gc=False):
    metadata: ListMeta
    items: tuple[T, ...] | None  # Required: an answer without items is no list. Go writes an empty list as null.

    def object_count_from_here(self) -> int | None:
        """Returns the number of objects on this page and all later ones; None if the server does not give it."""
        after = self.metadata.remaining_item_count
        return None if after is None and self.metadata.continue_ else len(self.items or ()) + (after or 0)


class CountedObject(Struct, frozen=True, gc=False):
    """An object that is counted but not decoded.

    Decoding ends at the first object beyond the bound. Otherwise millions of empty objects would take hundreds of MiB
    before they are counted.
    """

    def __post_init__(self) -> None:
        _COUNT.count_object()


@dataclass(slots=True)
class _Count:
    """The counter of the page that is being decoded. Decoding never suspends, so one counter is enough."""

    most: int = 0
    found: int = 0

    def count_object(self) -> None:
        self.found += 1
        if self.found > self.most:
            raise ValueError(f"more than {self.most} objects")


_COUNT: Final = _Count()


class WatchEvent(Struct, frozen=True, gc=False):
    type: str
    object: Raw


class Bookmark(Struct, frozen=True, gc=False):
    metadata: ListMeta


class ApiStatusCause(Struct, frozen=True, gc=False):
    field: str = ""
    reason: str = ""


class ApiStatusDetails(Struct, frozen=True, gc=False):
    causes: tuple[ApiStatusCause, ...] = ()


class ApiStatus(Struct, frozen=True, gc=False):
    """Kubernetes' Status: the answer of a server when it returns no object, for example an error."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: ApiStatusDetails | None = None

    @property
    def is_about_rights(self) -> bool:
        """Returns whether Kubernetes' authorizer refused. It looks at the text: admission also uses Forbidden."""
        return self.reason == "Forbidden" and NO_RIGHT.search(self.message) is not None

    @property
    def names_another_uid(self) -> bool:
        """Returns whether a patch was refused since it names another uid than the object's. Its status is 422."""
        return self.details is not None and any(cause.field == "metadata.uid" for cause in self.details.causes)

    @property
    def names_a_later_version(self) -> bool:
        """Returns whether a request named a resourceVersion that the server has not reached."""
        return self.details is not None and any(one.reason == "ResourceVersionTooLarge" for one in self.details.causes)


MANIFEST: Final = json.Decoder(Manifest)
MANIFEST_PAGE: Final = json.Decoder(ListPage[Manifest])
COUNTED_PAGE: Final = json.Decoder(ListPage[CountedObject])
RAW_PAGE: Final = json.Decoder(ListPage[Raw])
WATCH_EVENT: Final = json.Decoder(WatchEvent)
BOOKMARK: Final = json.Decoder(Bookmark)
STATUS: Final = json.Decoder(ApiStatus)


@lru_cache(maxsize=256)
def page_decoder(kind: Kind) -> json.Decoder[ListPage[Any]]:
    return json.Decoder(cast(Any, ListPage)[kind.type])


def count_objects(body: bytes, most: int) -> ListPage[CountedObject]:
    """Counts the objects of a page without reading them. Raises one of UNREADABLE when there are more than `most`."""
    _COUNT.most, _COUNT.found = most, 0
    return COUNTED_PAGE.decode(body)


def estimated_memory_bytes(text: bytes) -> int:
    """Returns an estimate of the bytes in memory of this JSON: its text, and VALUE_BYTES for each comma.

    A value takes more memory than its characters. For the fields of a usual pod the estimate is 1.5 times the real
    bytes, for a whole manifest half of them.
    """
    return len(text) + VALUE_BYTES * text.count(b",")


def read_status(body: bytes) -> ApiStatus:
    """Returns the server's status, with texts of at most SAID_CHARACTERS_MAX.

    Another body, such as a proxy's page, becomes the message.
    """
    try:
        said = STATUS.decode(body)
    except UNREADABLE:
        return ApiStatus(message=body[:500].decode(errors="replace"))
    reason, message = cut_text(said.reason, SAID_CHARACTERS_MAX), cut_text(said.message, SAID_CHARACTERS_MAX)
    return replace(said, reason=reason, message=message)


class BadLine(Exception):
    """Raised if a line of a watch is too long, or if too many lines in a row are empty."""


class Lines:
    """Joins chunks into lines, and holds at most `limit` bytes of a line that has not ended.

    empty_max: the most empty lines in a row. They yield nothing, so a reader would not notice an endless run of them.
    """

    def __init__(self, limit: int, empty_max: int) -> None:
        self._limit = limit
        self._empty_max = empty_max
        self._empty = 0  # The empty lines since the last line that was not empty.
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def feed_chunk(self, chunk: bytes) -> Iterator[bytes]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._append_piece(piece)
            line = b"".join(self._begun)
            self._begun, self._begun_bytes = [], 0
            if line.strip():
                self._empty = 0
                yield line
                continue
            self._empty += 1
            if self._empty > self._empty_max:
                raise BadLine(f"more than {self._empty_max} empty lines")
        self._append_piece(rest)

    def _append_piece(self, piece: bytes) -> None:
        self._begun_bytes += len(piece)
        if self._begun_bytes > self._limit:
            raise BadLine(f"a line of more than {self._limit} bytes")
        if piece:
            self._begun.append(piece)
