"""One watch: its position in the history, and its next events."""

import asyncio
from collections.abc import Mapping

from sim.core.errors import ApiError, version_too_old
from sim.core.listing import Selection, bookmark_text, change_text, error_text, event_text, parse_selection
from sim.core.requests import Api, requested_version, wants_metadata_only
from sim.core.routes import parse_route
from sim.core.store import Store
from sim.settings import Settings

_CHANGES_PER_CHUNK = 500


class Watch:
    def __init__(self, store: Store, selection: Selection, settings: Settings, *, metadata_only: bool) -> None:
        self._store = store
        self._selection = selection
        self._log = store.logs[selection.kind.plural]
        self._metadata_only = metadata_only
        self._position = self._log.end_position
        self._early: list[bytes] = []
        self._from_later = 0
        """A version that the watch began from and that the server had not reached yet. Changes up to it are not sent. 0
        without one."""
        self._refusal: ApiError | None = None
        self.plural = selection.kind.plural
        self.waker = asyncio.Event()
        self.bookmarks = False
        self.timeout_seconds = settings.watch_timeout_seconds
        self.is_lost = False
        """True when the watch fell behind the history. It then ends."""
        self.is_fresh = False
        """True for a watch that began with the whole state and not from a version."""

    @property
    def has_more(self) -> bool:
        return bool(self._early) or self._position < self._log.end_position

    def start_with_state(self, *, ends_with_bookmark: bool) -> None:
        self.is_fresh = True
        table = self._store.tables[self.plural]
        for key in self._store.sorted_keys(self.plural):
            if self._selection.selects_object(table[key]):
                self._early.append(
                    event_text(self._selection.kind, "ADDED", table[key], metadata_only=self._metadata_only)
                )
        if ends_with_bookmark:
            self._early.append(
                bookmark_text(
                    self._selection.kind, self._store.version, metadata_only=self._metadata_only, ends_initial=True
                )
            )

    def start_after_version(self, version: int, *, refuse_as_event: bool) -> None:
        self._from_later = version if version > self._store.version else 0
        position = self._log.position_after(version)
        if position is not None:
            self._position = position
            return
        error = version_too_old(version, self._log.floor)
        if not refuse_as_event:
            raise error
        self._refusal = error

    def read_chunk(self) -> bytes:
        """Returns whole lines, as many as one chunk may have. The rest comes with the next chunk."""
        if self._refusal:
            self.is_lost = True
            return self.error_line(self._refusal)
        if self._early:
            chunk = b"".join(self._early[:_CHANGES_PER_CHUNK])
            del self._early[:_CHANGES_PER_CHUNK]
            return chunk
        changes = self._log.read_changes(self._position, _CHANGES_PER_CHUNK)
        if changes is None:
            self.is_lost = True
            # A slow reader is dropped without an error. A reader whose history was expired gets one.
            return (
                self.error_line(version_too_old(0, self._log.floor)) if self._position < self._log.expired_end else b""
            )
        self._position += len(changes)
        told = (one for one in changes if one.version > self._from_later)
        lines = (change_text(self._selection, one, metadata_only=self._metadata_only) for one in told)
        return b"".join(lines)

    def bookmark_line(self) -> bytes:
        if self._store.version < self._from_later:
            return b""
        return bookmark_text(self._selection.kind, self._store.version, metadata_only=self._metadata_only)

    def error_line(self, error: ApiError) -> bytes:
        return error_text(error)


def open_watch(api: Api, store: Store, settings: Settings, asked: tuple[str, Mapping[str, str], str]) -> Watch:
    """Opens a watch. `asked` is path, params and accept. Raises ApiError when the watch cannot begin.

    Like an API server, it accepts a future resourceVersion and waits; with sendInitialEvents it refuses one.
    """
    path, params, accept = asked
    route = parse_route(path)
    selection = parse_selection(route.kind, route.namespace, route.name, params)
    watch = Watch(store, selection, settings, metadata_only=wants_metadata_only(accept))
    watch.bookmarks = params.get("allowWatchBookmarks") in ("true", "1")
    if params.get("timeoutSeconds", "").isdigit():
        watch.timeout_seconds = float(params["timeoutSeconds"]) or settings.watch_timeout_seconds
    initial = params.get("sendInitialEvents") == "true"
    version = api.check_version(params) if initial else requested_version(params)
    if initial or not version:
        watch.start_with_state(ends_with_bookmark=initial)
    else:
        watch.start_after_version(version, refuse_as_event=settings.expired_watch_as == "event")
    return watch
