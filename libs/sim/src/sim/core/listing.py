"""Lists with limit and continue, and the JSON texts of objects."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sim.core.errors import ApiError, bad_request, expired
from sim.core.kinds import Kind, Object, key_of
from sim.core.selectors import Selector, matches_labels, node_in_field_selector, parse_field_selector, parse_selector
from sim.core.store import Change, Store

_SNAPSHOTS_KEPT = 64
_META = "meta.k8s.io/v1"
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the objects of a kind that a request asks for."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    labels: Selector = ()
    fields: Callable[[Object], bool] | None = None
    node: str = ""
    """For pods: the node that the field selector asks for. The index by node finds its pods."""

    @property
    def is_unfiltered(self) -> bool:
        return not (self.namespace or self.name or self.labels or self.fields)

    def selects_object(self, found: Object) -> bool:
        metadata = found["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self.name and metadata["name"] != self.name:
            return False
        if self.labels and not matches_labels(self.labels, metadata.get("labels") or {}):
            return False
        return self.fields is None or self.fields(found)


def parse_selection(kind: Kind, namespace: str, name: str, params: Mapping[str, str]) -> Selection:
    try:
        labels = parse_selector(params.get("labelSelector", ""))
        text = params.get("fieldSelector", "")
        fields = parse_field_selector(kind.plural, text) if text else None
        node = node_in_field_selector(text) if kind.plural == "pods" else ""
    except ValueError as error:
        raise bad_request(str(error)) from error
    return Selection(kind, namespace, name, labels, fields, node)


@dataclass(frozen=True, slots=True)
class Page:
    version: int
    items: Sequence[Object]
    continues: str = ""
    remaining: int = 0
    """The number of objects after this page. 0 is left out of the answer."""


@dataclass(slots=True)
class _Snapshot:
    version: int
    items: list[Object] = field(default_factory=list)
    counts_remaining: bool = True


class Lister:
    """Lists objects in pages.

    All pages of one list show the state at its first page. Old lists are forgotten: their next page answers 410.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[int, _Snapshot] = OrderedDict()
        self._made = 0

    def list_page(self, selection: Selection, limit: int, continues: str) -> Page:
        if continues:
            number, offset = _parse_continue_token(continues)
            snapshot = self._snapshots.get(number)
            if snapshot is None:
                message = "The provided continue parameter is too old to display a consistent list result."
                raise expired(message)
        else:
            number, offset, snapshot = 0, 0, self._take_snapshot(selection)
        end = offset + limit if limit else len(snapshot.items)
        left = len(snapshot.items) - end
        if left <= 0:
            return Page(snapshot.version, snapshot.items[offset:])
        token = _continue_token(number or self._keep_snapshot(snapshot), end)
        return Page(snapshot.version, snapshot.items[offset:end], token, left if snapshot.counts_remaining else 0)

    def list_at_version(self, selection: Selection, version: int) -> Page:
        """Returns the list as of an earlier version. Raises ApiError 410 once the history since then is forgotten."""
        log = self._store.logs[selection.kind.plural]
        position = log.position_after(version)
        if position is None:
            raise expired(f"The resourceVersion for the provided list is too old: {version}.")
        found = {key_of(one["metadata"]): one for one in self._take_snapshot(selection).items}
        for change in reversed(log.read_changes(position, log.end_position - position) or ()):
            found.pop(change.key, None)
            if change.old is not None and selection.selects_object(change.old):
                found[change.key] = change.old
        return Page(version, [found[key] for key in sorted(found)])

    def forget_snapshots(self) -> None:
        self._snapshots.clear()

    def _take_snapshot(self, selection: Selection) -> _Snapshot:
        plural = selection.kind.plural
        table = self._store.tables[plural]
        keys = self._store.pods_on_node(selection.node) if selection.node else self._store.sorted_keys(plural)
        items = [table[key] for key in keys]
        if not selection.is_unfiltered:
            items = [found for found in items if selection.selects_object(found)]
        plain = not (selection.labels or selection.fields)
        return _Snapshot(self._store.version, items, plain)

    def _keep_snapshot(self, snapshot: _Snapshot) -> int:
        self._made += 1
        self._snapshots[self._made] = snapshot
        if len(self._snapshots) > _SNAPSHOTS_KEPT:
            self._snapshots.popitem(last=False)
        return self._made


def _continue_token(number: int, offset: int) -> str:
    return urlsafe_b64encode(f"{number}:{offset}".encode()).decode()


def _parse_continue_token(text: str) -> tuple[int, int]:
    try:
        number, offset = urlsafe_b64decode(text).decode().split(":")
        return int(number), int(offset)
    except ValueError as error:
        raise bad_request("continue key is not valid") from error


def object_text(kind: Kind, found: Object, *, metadata_only: bool = False) -> bytes:
    if metadata_only:
        head = {"kind": "PartialObjectMetadata", "apiVersion": _META}
        return encode({**head, "metadata": found["metadata"]})
    return encode({"kind": kind.name, "apiVersion": kind.api_version, **found})


def list_text(kind: Kind, page: Page, *, metadata_only: bool = False) -> bytes:
    """Returns a list as JSON. Items have no kind and apiVersion, as in the API server's lists."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.continues:
        metadata["continue"] = page.continues
        if page.remaining:
            metadata["remainingItemCount"] = page.remaining
    items: Sequence[Any] = page.items
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
    if metadata_only:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": _META}
        items = [{"metadata": one["metadata"]} for one in items]
    return encode({**head, "metadata": metadata, "items": items})


def event_text(kind: Kind, event: str, found: Object, *, metadata_only: bool = False) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event.encode(), object_text(kind, found, metadata_only=metadata_only))


def bookmark_text(kind: Kind, version: int, *, metadata_only: bool = False, ends_initial: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if ends_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event_text(kind, "BOOKMARK", {"metadata": metadata}, metadata_only=metadata_only)


def error_text(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%s}\n' % encode(error.status())


def change_text(selection: Selection, change: Change, *, metadata_only: bool = False) -> bytes:
    """Returns a change as the watcher of a selection sees it; empty when the watcher does not see it."""
    before = change.old is not None and selection.selects_object(change.old)
    after = change.type != "DELETED" and selection.selects_object(change.new)
    if after:
        event = "MODIFIED" if before else "ADDED"
    elif before:
        event = "DELETED"
    else:
        return b""
    return event_text(selection.kind, event, change.new, metadata_only=metadata_only)
