"""Lists of objects, bounded in objects, bytes and time, and decoded in steps, so that no cluster holds up another one.

Decoding JSON holds the interpreter, in a thread as well. So a large page is first cut into its objects, which is fast,
and the objects are then decoded some at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import msgspec

from spillway.clusters import answers
from spillway.clusters.answers import ListMeta, ListPage
from spillway.clusters.errors import ClusterUnreachable, TooLarge, TooMuch
from spillway.clusters.requests import Requests
from spillway.kubernetes import objects
from spillway.kubernetes.objects import Kind, Manifest

STEP_BYTES: Final = 4 * 2**20
WHOLE_STEP_BYTES: Final = 256 * 1024
"""The most bytes of JSON that are decoded in one step, of fields and of whole manifests. Each step takes about 10 ms: a
whole manifest costs ten times what the fields that we read cost."""
SMALLER: Final = 8
"""The divisor for the page size: after a page that was too large, the next request asks for this many times fewer
objects. After a page of less than a quarter of the bound, the next request asks for twice as many."""


class _Tally:
    """Counts the objects and bytes of one list, and its time. Raises TooMuch beyond a bound, and names the bound."""

    def __init__(self, api: Requests, kind: Kind, *, whole: bool) -> None:
        self._api, self._kind = api, kind
        self._objects = self._bytes = 0
        bounds = api.settings
        self._bytes_max = (
            ("whole_list_bytes_max", bounds.whole_list_bytes_max)
            if whole
            else ("list_bytes_max", bounds.list_bytes_max)
        )
        self._began_at = asyncio.get_running_loop().time()

    def add_page(self, found: int, kept_bytes: int) -> None:
        """Adds a page. A page without objects counts as one object, since a server may send any number of them."""
        self._objects += max(1, found)
        self._bytes += kept_bytes
        settings, (name, bytes_max) = self._api.settings, self._bytes_max
        if self._objects > settings.list_objects_max:
            self._raise_too_much("garbage", f"list_objects_max ({settings.list_objects_max})")
        if self._bytes > bytes_max:
            self._raise_too_much("garbage", f"{name} ({bytes_max})")
        if asyncio.get_running_loop().time() - self._began_at > settings.list_seconds_max:
            self._raise_too_much("timeout", f"list_seconds_max ({settings.list_seconds_max:g})")

    def _raise_too_much(self, reason: Any, bound: str) -> None:
        raise TooMuch(self._api.name, reason, f"a list of {self._kind.plural} beyond {bound}")


class Lists(Requests):
    async def list_manifests(
        self, kind: Kind, params: Mapping[str, str], namespace: str = ""
    ) -> tuple[tuple[Manifest, ...], str]:
        """Returns every object as a whole manifest, and the resourceVersion of the list.

        Raises Expired when the server has lost its position in the list.
        """
        pages = [page async for page in self.each_page(kind, params, namespace, whole=True)]
        return tuple(one for found, _ in pages for one in found), pages[-1][1]

    async def each_page(
        self, kind: Kind, params: Mapping[str, str], namespace: str = "", *, whole: bool = False
    ) -> AsyncGenerator[tuple[tuple[Any, ...], str], None]:
        """Yields pages one after the other. After a page that is too large it asks for smaller ones.

        whole: as manifests; otherwise as values of the kind's type.
        """
        settings, tally = self.settings, _Tally(self, kind, whole=whole)
        query, limit = dict(params), settings.page_objects
        while True:
            query["limit"] = str(limit)
            try:
                response = await self._send_request(
                    "GET", kind.path(namespace), query, accept=kind.accept_header("List")
                )
            except TooLarge:
                if limit <= settings.large_page_objects:
                    raise
                limit = max(settings.large_page_objects, limit // SMALLER)
                continue
            body = self.read_body(response)
            found, about, kept_bytes = await self._decode_page(
                kind, body, limit + settings.page_slack_objects, whole=whole
            )
            tally.add_page(len(found), kept_bytes)
            yield found, about.resource_version
            if not about.continue_:
                return
            query["continue"] = about.continue_
            if 4 * len(body) < settings.response_bytes_max:
                limit = min(settings.page_objects, 2 * limit)

    async def decode_unpaged_list(self, kind: Kind, body: bytes, *, whole: bool = False) -> tuple[Any, ...]:
        """Returns the objects of an answer that has no pages."""
        tally = _Tally(self, kind, whole=whole)
        found, _, kept_bytes = await self._decode_page(kind, body, self.settings.list_objects_max, whole=whole)
        tally.add_page(len(found), kept_bytes)
        return found

    def count_page_objects(self, kind: Kind, body: bytes, most: int) -> ListPage[answers.CountedObject]:
        """Counts the objects of a page without decoding them. Raises ClusterUnreachable for more than `most`."""
        try:
            return answers.count_objects(body, most)
        except answers.UNREADABLE as error:
            raise ClusterUnreachable(self.name, "garbage", f"a page of {kind.plural}: {error}") from error

    async def _decode_page(
        self, kind: Kind, body: bytes, most: int, *, whole: bool
    ) -> tuple[tuple[Any, ...], ListMeta, int]:
        """Returns the objects of a page, its metadata, and an estimate of the bytes that they take in memory."""
        step_bytes = WHOLE_STEP_BYTES if whole else STEP_BYTES
        if len(body) <= step_bytes:
            page = self.decode_json(answers.page_decoder(kind), body)
            if len(page.items or ()) > most:
                detail = f"a page of {kind.plural} with {len(page.items or ())} objects, and at most {most} are taken"
                raise ClusterUnreachable(self.name, "garbage", detail)
            if whole:
                return (
                    self.decode_json(answers.MANIFEST_PAGE, body).items or (),
                    page.metadata,
                    answers.estimated_memory_bytes(body),
                )
            return page.items or (), page.metadata, answers.estimated_memory_bytes(msgspec.json.encode(page.items))
        self.count_page_objects(kind, body, most)
        raw_page = self.decode_json(answers.RAW_PAGE, body)
        found, kept_bytes, step = list[Any](), 0, list[Any]()
        read_bytes = 0
        for raw in raw_page.items or ():
            step.append(self.decode_manifest(kind, raw) if whole else self._decode_object(kind, raw))
            read_bytes += memoryview(raw).nbytes
            if read_bytes >= step_bytes:
                # The bytes of whole manifests are estimated once, at the end, from the page itself.
                kept_bytes += 0 if whole else answers.estimated_memory_bytes(msgspec.json.encode(step))
                found += step
                step, read_bytes = [], 0
                await asyncio.sleep(0)
        kept_bytes += answers.estimated_memory_bytes(body if whole else msgspec.json.encode(step))
        return (*found, *step), raw_page.metadata, kept_bytes

    def _decode_object(self, kind: Kind, raw: msgspec.Raw) -> Any:
        self.check_size(raw)
        return self.decode_json(objects.object_decoder(kind), raw)
