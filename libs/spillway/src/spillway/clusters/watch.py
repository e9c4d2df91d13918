"""Follows one kind of object: lists it, then yields its changes. Goes on after every failure of the API."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from spillway import metrics
from spillway.clusters import answers
from spillway.clusters.errors import ClusterUnreachable, Expired, TooMuch, UnreachableReason
from spillway.clusters.lists import Lists
from spillway.clusters.transport import Response
from spillway.kubernetes import objects
from spillway.kubernetes.objects import Kind

SHORT_WATCH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """All objects of a complete list. A known object that is not in it was deleted."""

    objects: tuple[Any, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some of the objects of a list in pages. The list may begin again from the start."""

    objects: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PagesEnded:
    """The end of a list in pages, with the uids of all its objects. A known object whose uid is missing was deleted."""

    uids: frozenset[str]
    resource_version: str


@dataclass(frozen=True, slots=True)
class ObjectUpserted:
    object: Any


@dataclass(frozen=True, slots=True)
class ObjectRemoved:
    object: Any  # The object in its last state.


@dataclass(frozen=True, slots=True)
class StreamAlive:
    """A sign that the watch works, without a change: it was opened, or a bookmark came."""


@dataclass(frozen=True, slots=True)
class FollowingFailed:
    """Following has failed, or now fails for another reason. It is yielded once for each reason.

    Any other kind of change means that following works again.
    """

    error: ClusterUnreachable


Place = tuple[str, str, str]
"""The uid, namespace and name of an object. A broken server may send many objects with one uid, or with one name."""


class _KnownObjects:
    """Counts the objects that a reader knows from a list and the watches after it, and the bytes that came by watches.

    Beyond a bound, add_object raises TooMuch with the bound's name. Then the reader needs a new list.
    """

    def __init__(self, api: Lists, kind: Kind, listed: Iterable[Place]) -> None:
        self._bytes_by_place = dict.fromkeys(listed, 0)
        self._bytes = 0
        self._api, self._kind = api, kind

    def add_object(self, place: Place, kept_bytes: int) -> None:
        self._bytes += kept_bytes - self._bytes_by_place.get(place, 0)
        self._bytes_by_place[place] = kept_bytes
        self._check_bound(len(self._bytes_by_place), "list_objects_max")
        self._check_bound(self._bytes, "list_bytes_max")

    def remove_object(self, place: Place) -> None:
        self._bytes -= self._bytes_by_place.pop(place, 0)

    def _check_bound(self, found: int, bound: str) -> None:
        most = getattr(self._api.settings, bound)
        if found > most:
            detail = f"watches of {self._kind.plural} beyond {bound} ({most})"
            raise TooMuch(self._api.name, "garbage", detail)


Change = ListedObjects | ListedPage | PagesEnded | ObjectUpserted | ObjectRemoved | StreamAlive | FollowingFailed


def _place_of_object(found: Any) -> Place:
    return found.metadata.uid, found.metadata.namespace, found.metadata.name


class Reflector:
    """Lists the objects of one kind, then watches them.

    It lists again only when the server no longer has its version, when an answer cannot be read, or when watches bring
    nothing, not even a bookmark.

    Watches bring nothing after an API server's etcd was restored from a backup. Its versions go on from the backup, and
    it reports no change until they pass the requested version.
    paged: yields lists as ListedPage and PagesEnded, so that memory never holds a whole list.
    """

    def __init__(self, api: Lists, kind: Kind, params: Mapping[str, str], *, paged: bool = False) -> None:
        self._api = api
        self._kind = kind
        self._params = params
        self._paged = paged
        self._version = ""  # The version to watch from; empty: list first.
        self._setbacks = 0  # The number of failures in a row.
        self._watching_since: float | None = None
        self._opened_at: float | None = None
        self._heard = False  # Whether the open watch, or the last one, brought an event.
        self._silent_seconds = 0.0  # The time of open watches since the last event or list.
        self._failing: UnreachableReason | None = None
        self._known = self._known_from_list(())

    async def changes(self) -> AsyncGenerator[tuple[Change, ...], None]:
        while True:
            self._watching_since = self._opened_at = None
            least_seconds = 0.0
            try:
                if not self._version:
                    async with aclosing(self._list_objects()) as said:
                        async for change in said:
                            yield (change,)
                async with aclosing(self._watch_objects()) as batches:
                    async for batch in batches:
                        yield batch
                self._setbacks = 0 if self._heard else self._setbacks_now()
                self._note_silence()
            except Expired:
                metrics.WATCH_RESTARTS.labels(self._kind.plural, "expired").inc()
                self._version = ""
                self._setbacks = self._setbacks_now()
            except ClusterUnreachable as error:
                metrics.WATCH_RESTARTS.labels(self._kind.plural, error.reason).inc()
                # An answer that cannot be read may have contained changes. A new list shows them.
                self._version = "" if error.reason == "garbage" else self._version
                self._setbacks = self._setbacks_now()
                self._note_silence()
                if isinstance(error, TooMuch):
                    least_seconds = self._api.settings.too_much_pause_seconds
                if self._failing != error.reason:
                    self._failing = error.reason
                    yield (FollowingFailed(error),)
            pause_seconds = self._api.settings.pause_seconds(self._setbacks, self._api.random)
            await asyncio.sleep(max(least_seconds, pause_seconds))

    def _setbacks_now(self) -> int:
        """Returns the number of failures in a row, this one included.

        A watch that lasted for SHORT_WATCH_SECONDS begins a new row, so only failures of short watches add up.
        """
        since = self._watching_since
        fresh = since is not None and asyncio.get_running_loop().time() - since >= SHORT_WATCH_SECONDS
        return 1 if fresh else self._setbacks + 1

    def _note_silence(self) -> None:
        """Adds up the time of watches that ended without an event. After watch_idle_seconds, the objects are listed
        again. So watches that a proxy ends early are noticed, too."""
        if self._opened_at is None or self._heard:
            return
        self._silent_seconds += asyncio.get_running_loop().time() - self._opened_at
        if self._version and self._silent_seconds >= self._api.settings.watch_idle_seconds:
            metrics.WATCH_RESTARTS.labels(self._kind.plural, "silent").inc()
            self._version = ""

    async def _list_objects(self) -> AsyncGenerator[Change, None]:
        objects, places, version = list[Any](), set[Place](), ""
        with metrics.LIST_SECONDS.labels(self._kind.plural).time():
            async with aclosing(self._api.each_page(self._kind, self._params)) as pages:
                async for found, version in pages:
                    if not version:
                        why = f"a list of {self._kind.plural} has no resourceVersion"
                        raise ClusterUnreachable(self._api.name, "garbage", why)
                    places.update(map(_place_of_object, found))
                    if self._paged:
                        yield ListedPage(found)
                    else:
                        objects.extend(found)
        self._version, self._silent_seconds = version, 0.0
        self._failing = None
        self._known = self._known_from_list(places)
        uids = frozenset(uid for uid, _, _ in places)
        yield PagesEnded(uids, version) if self._paged else ListedObjects(tuple(objects), version)

    async def _watch_objects(self) -> AsyncGenerator[tuple[Change, ...], None]:
        settings = self._api.settings
        lines = answers.Lines(settings.line_bytes_max, settings.empty_lines_max)
        self._heard = False
        self._watching_since = asyncio.get_running_loop().time()
        async with aclosing(self._api.watch_chunks(self._kind, self._params, self._version)) as chunks:
            async for chunk in chunks:
                if self._opened_at is None:
                    self._opened_at = asyncio.get_running_loop().time()
                batch: list[Change] = [] if chunk else [StreamAlive()]
                trouble: ClusterUnreachable | None = None
                try:
                    for line in lines.feed_chunk(chunk):
                        batch.append(self._parse_change(line))
                        self._heard, self._silent_seconds = True, 0.0
                        if len(batch) >= settings.watch_step_lines:
                            self._failing = None
                            yield tuple(batch)
                            batch = []
                            await asyncio.sleep(0)
                except ClusterUnreachable as error:
                    trouble = error
                except answers.BadLine as error:
                    trouble = ClusterUnreachable(self._api.name, "garbage", str(error))
                if batch:  # Changes before the error in the same chunk are valid.
                    self._failing = None
                    yield tuple(batch)
                if trouble is not None:
                    raise trouble
                await asyncio.sleep(0)  # Chunks that have arrived would otherwise keep other tasks from running.

    def _known_from_list(self, listed: Iterable[Place]) -> _KnownObjects:
        return _KnownObjects(self._api, self._kind, listed)

    def _update_known_objects(self, found: Any, *, is_gone: bool) -> None:
        """Counts an object from a watch event, or its deletion. Raises TooMuch beyond a bound."""
        if is_gone:
            self._known.remove_object(_place_of_object(found))
        else:
            kept_bytes = answers.estimated_memory_bytes(msgspec.json.encode(found))
            self._known.add_object(_place_of_object(found), kept_bytes)

    def _parse_change(self, line: bytes) -> Change:
        event = self._api.decode_json(answers.WATCH_EVENT, line)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            found = self._api.decode_json(objects.object_decoder(self._kind), event.object)
            version = found.metadata.resource_version
            if len(version) > answers.VERSION_CHARACTERS_MAX:
                raise ClusterUnreachable(self._api.name, "garbage", f"a version of {len(version)} characters")
            self._version = version
            is_gone = event.type == "DELETED"
            self._update_known_objects(found, is_gone=is_gone)
            return ObjectRemoved(found) if is_gone else ObjectUpserted(found)
        if event.type == "BOOKMARK":
            self._version = self._api.decode_json(answers.BOOKMARK, event.object).metadata.resource_version
            return StreamAlive()
        if event.type == "ERROR":
            self._api.read_body(Response(self._api.decode_json(answers.STATUS, event.object).code, bytes(event.object)))
        raise ClusterUnreachable(self._api.name, "garbage", f"an event of type {event.type[:40]!r}")
