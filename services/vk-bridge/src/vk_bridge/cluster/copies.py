"""Creates, updates and removes the namespaces, ConfigMaps and Secrets that pool pods need in an owner."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import structlog

from spillway.clusters.api import (
    CONFIG_MAPS,
    SECRETS,
    ClusterApi,
    ClusterUnreachable,
    Conflict,
    NotFound,
    Refused,
)
from spillway.kubernetes.objects import ABSENT, Kind
from spillway.lending_marks import COPY_VERSION, POOL
from spillway.running.isolation import ends_the_process, note_failed_work
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.namespaces import OwnerNamespaces, is_copy
from vk_bridge.cluster.pod_conversion import SERVICE, try_convert_pod
from vk_bridge.cluster.pools import Pool
from vk_bridge.cluster.version_cache import VersionCache
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.conversion import (
    CONFIG_MAP,
    SECRET,
    ConfigReference,
    CopyPlace,
    PoolSide,
    annotated_copy_bytes,
    content_bytes,
    copy_place,
    make_copy,
)
from vk_bridge.core.pod.conversion import ConversionRefused as NotCopied
from vk_bridge.core.pod.copy_shares import (
    HeldCopy,
    added_bytes,
    bytes_of_namespace,
    may_hold_copies,
    may_remove_copy,
    never_fits_text,
)
from vk_bridge.core.pod.status import has_had_real_pod
from vk_bridge.core.selection.owner_cache import OwnerCache
from vk_bridge.settings import VkBridgeSettings

KINDS: Final = {CONFIG_MAP: CONFIG_MAPS, SECRET: SECRETS}
WITHOUT_DATA: Final = {kind: replace(served, metadata_only=True) for kind, served in KINDS.items()}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that a pod needs and that the owner does not have.

    refused: True if it must not be copied there.
    beyond_share: True if it may be copied once its namespace holds less there, or others do.
    Neither: the pool does not have it, either.
    """

    what: str
    refused: bool = False
    beyond_share: bool = False


@dataclass(frozen=True, slots=True)
class _FoundCopy:
    """An object of the pool and its copy.

    size_bytes: of the object's content. is_current: whether the copy has this content.
    made: the copy as it should be; None: it is read again before it is written. there: the copy as it is.
    """

    reference: ConfigReference
    place: CopyPlace
    size_bytes: int
    is_current: bool
    made: dict[str, Any] | None
    there: Manifest | None


class CopiesState(Enum):
    """The result of comparing all copies: no copy of ours and no real pod is left, some are left, or a call failed."""

    NONE_LEFT = auto()
    SOME_LEFT = auto()
    FAILED = auto()


class Copies:
    """Keeps the copies in one owner up to date, and removes unused ones.

    `ensure_namespace_and_copies` raises Conflict, Refused and ClusterUnreachable.
    lends_nothing: returns whether the owner lends no node and will lend none, so that unused copies stay unused.
    """

    def __init__(
        self,
        fleet: str,
        api: ClusterApi,
        gate: BackoffGate,
        settings: VkBridgeSettings,
        owner_cache: OwnerCache,
        lends_nothing: Callable[[], bool],
    ) -> None:
        self._lends_nothing = lends_nothing
        self._api = api
        self._gate = gate
        self._settings = settings
        self._owner_cache = owner_cache
        self._namespaces = OwnerNamespaces(fleet, api, gate)
        self._used_at: dict[CopyPlace | str, float] = {}
        """The clock time at which a copy, or a namespace, was last known to be needed."""
        self._held: dict[CopyPlace, HeldCopy] | None = None
        """Each copy, as it is or as it is being written; None: the copies are not listed yet."""
        self._listing = asyncio.Lock()
        self._references = VersionCache[frozenset[ConfigReference]]()
        self._referred: dict[str, tuple[str, frozenset[ConfigReference]]] = {}
        """By node: its pool, and the references of its pods there."""

    # ── For a pod that is about to be created ───────────────────────────────────────────────────────────────────

    async def ensure_namespace_and_copies(
        self, pool: Pool, side: PoolSide, namespace: str, references: Iterable[ConfigReference]
    ) -> MissingObject | None:
        """Creates the pod's namespace, and copies of the ConfigMaps and Secrets that it refers to.

        Returns the first of these objects that cannot be created; None if all are there.
        """
        self._used_at[namespace] = _loop_time()
        not_ours = await self._namespaces.ensure_namespace(namespace)
        if not_ours:
            return MissingObject(not_ours, refused=True)
        return await self._ensure_copies(pool, side, references)

    def note_references(self, node: str, side: PoolSide, pool_pods: Iterable[Manifest]) -> None:
        """Stores the references of a node's pool pods. Only objects with such a reference are ever copied."""
        created = {pod["metadata"]["uid"]: pod for pod in pool_pods if has_had_real_pod(pod)}

        def references_of_pod(uid: str) -> frozenset[ConfigReference]:
            made = try_convert_pod(created[uid], node, side)
            return frozenset(made.references) if not isinstance(made, NotCopied) else frozenset()

        # A pod's references never change.
        by_uid = self._references.value_by_uid(node, dict.fromkeys(created, side.pool_id), references_of_pod)
        found = frozenset[ConfigReference]().union(*by_uid.values())
        self._referred.pop(node, None)
        if found:
            self._referred[node] = side.pool_id, found

    def forget_references(self, node: str) -> None:
        """Drops the references of a node that is its owner's again, so that its copies can be removed."""
        self._referred.pop(node, None)

    def note_namespace_missing(self, namespace: str) -> None:
        """Makes the next `ensure_namespace_and_copies` check this namespace again, because it was missing a moment
        ago."""
        self._namespaces.note_namespace_missing(namespace)

    async def _ensure_copies(
        self, pool: Pool, side: PoolSide, references: Iterable[ConfigReference]
    ) -> MissingObject | None:
        """Writes the copies that are not current, but none unless all of them may be there: else two pods could each
        hold what the other one waits for. The references are of one namespace.

        Returns the first object that the pool does not have, that must not be copied, or for which there is no room.
        """
        due, sizes, kept_bytes = list[_FoundCopy](), dict[CopyPlace, int](), 0
        for reference in references:
            found = await self._find_copy(pool, side, reference)
            if isinstance(found, MissingObject):
                if found.refused or not reference.optional:
                    return found
                continue
            sizes[found.place] = found.size_bytes
            if found.is_current:
                continue
            trouble = self._trouble_with_sizes(await self._held_copies(), side, reference, sizes)
            if trouble is not None:
                return trouble
            kept_bytes += found.size_bytes
            is_kept = not due or kept_bytes <= self._settings.copy_content_bytes_max
            due.append(found if is_kept else replace(found, made=None, there=None))
        trouble = await self._reserve_bytes(side, sizes, due)
        return await self._write_copies(pool, side, due) if trouble is None else trouble

    async def _write_copies(self, pool: Pool, side: PoolSide, due: Sequence[_FoundCopy]) -> MissingObject | None:
        """Writes copies; those without content are read again. Returns the first one that must not be written now."""
        for found in due:
            if found.made is not None:
                await self._write_copy(found)
            else:
                trouble = await self._ensure_copies(pool, side, (found.reference,))
                if trouble is not None:
                    return trouble
        return None

    async def _find_copy(self, pool: Pool, side: PoolSide, reference: ConfigReference) -> MissingObject | _FoundCopy:
        """Compares the copy with the original in the pool.

        Returns the object if the pool does not have it, or if it must not be copied.
        """
        place = copy_place(reference, side.pool_id)
        self._used_at[place] = _loop_time()
        kind = KINDS[reference.kind]
        found = await pool.gate.send_request(lambda: pool.api.get(kind, reference.namespace, reference.name))
        if found is None:
            return MissingObject(f'{reference.kind.lower()} "{reference.name}" not found')
        made = make_copy(found, reference.kind, side)
        if isinstance(made, NotCopied):
            return MissingObject("; ".join(made.reasons), refused=True)
        there = await self._gate.send_request(lambda: self._api.get(kind, place.namespace, place.name))
        if there is not None and not is_copy(there, side.pool_id):
            whose = f"{place.kind} {place.namespace}/{place.name} of cluster {self._api.name}"
            return MissingObject(f"{whose} is not ours, or another pool's", refused=True)
        is_current = there is not None and _resource_version_of(there) == _resource_version_of(made)
        return _FoundCopy(reference, place, content_bytes(made), is_current, made, there)

    def _trouble_with_sizes(
        self,
        held: Mapping[CopyPlace, HeldCopy],
        side: PoolSide,
        reference: ConfigReference,
        sizes: Mapping[CopyPlace, int],
    ) -> MissingObject | None:
        """Returns why the copies must not have these sizes in bytes, now or ever; None: they may.

        reference: one of them, for the text. The text says nothing of what other namespaces hold.
        """
        most = self._settings.copies_bytes_max
        too_large = never_fits_text(sizes, most)
        if too_large:
            return MissingObject(too_large, refused=True)
        if may_hold_copies(held, sizes, side.pool_id, most):
            return None
        own = bytes_of_namespace(held, sizes, side.pool_id)
        return MissingObject(
            f"{reference.kind} {reference.name}: {added_bytes(held, sizes)} bytes more beside {own} that copies of "
            f"namespace {reference.namespace} have in cluster {self._api.name}: expected at most as many as it leaves "
            f"free of {most} (copies_bytes_max)",
            beyond_share=True,
        )

    async def _reserve_bytes(
        self, side: PoolSide, sizes: Mapping[CopyPlace, int], due: Sequence[_FoundCopy]
    ) -> MissingObject | None:
        """Counts the copies with their new sizes, unless others have taken the room since it was looked at."""
        if not due:
            return None
        held = await self._held_copies()
        trouble = self._trouble_with_sizes(held, side, due[-1].reference, sizes)
        if trouble is None:
            held.update({place: HeldCopy(side.pool_id, size) for place, size in sizes.items()})
        return trouble

    async def _held_copies(self) -> dict[CopyPlace, HeldCopy]:
        async with self._listing:
            if self._held is None:
                self._held = await self._read_held_copies()
        return self._held

    async def _read_held_copies(self) -> dict[CopyPlace, HeldCopy]:
        """Returns each existing copy, of any bridge. Only copies without a size annotation are read."""
        found: dict[CopyPlace, HeldCopy] = {}
        for name, kind in WITHOUT_DATA.items():
            for one in await self._gate.send_request(lambda kind=kind: self._api.list(kind, label_selector=POOL)):  # type: ignore[misc]
                if is_copy(one):
                    copy = CopyPlace(name, one["metadata"]["namespace"], one["metadata"]["name"])
                    told = annotated_copy_bytes(one)
                    size = await self._read_copy_bytes(copy) if told is None else told
                    found[copy] = HeldCopy(one["metadata"]["labels"][POOL], size)
        return found

    async def _read_copy_bytes(self, copy: CopyPlace) -> int:
        found = await self._gate.send_request(lambda: self._api.get(KINDS[copy.kind], copy.namespace, copy.name))
        return content_bytes(found) if found is not None else 0

    async def _write_copy(self, found: _FoundCopy) -> None:
        """Creates or replaces a copy at the version that was found. Raises Conflict if that has changed since."""
        kind, place, there, made = KINDS[found.reference.kind], found.place, found.there, found.made
        assert made is not None
        if there is None:
            await self._apply_copy(kind, made, ABSENT)
            return
        version = there["metadata"]["resourceVersion"]
        if there.get("immutable") or there.get("type") != made.get("type"):  # A Secret's type never changes.
            uid = there["metadata"]["uid"]
            await self._gate.send_request(
                lambda: self._api.delete(kind, place.namespace, place.name, uid=uid, resource_version=version)
            )
            version = ABSENT
        await self._apply_copy(kind, made, version)
        log.info(
            "a copy of a ConfigMap or Secret was brought up to date",
            cluster=self._api.name,
            kind=place.kind,
            namespace=place.namespace,
        )

    async def _apply_copy(self, kind: Kind, made: dict[str, Any], version: str) -> None:
        await self._gate.send_request(lambda: self._api.apply(kind, made, resource_version=version, force=True))

    # ── What is there already ───────────────────────────────────────────────────────────────────────────────────

    async def tend_copies(self, pools: Callable[[str], Pool | None]) -> CopiesState:
        """Updates all copies that pods refer to from their originals, and removes unused ones. Raises nothing."""
        used = self._find_copies_in_use()
        slots = asyncio.Semaphore(self._settings.copies_at_once)
        async with asyncio.TaskGroup() as group:
            for pool_name, reference in sorted(self._references_with_pool()):
                pool = pools(pool_name)
                if pool is not None:
                    group.create_task(self._update_copy(pool, PoolSide(pool_name, "", ""), reference, slots))
        try:
            return await self._remove_unused_copies(used)
        except (ClusterUnreachable, Conflict, Refused) as error:
            log.warning(
                "unused copies of ConfigMaps and Secrets are not removed yet", cluster=self._api.name, error=str(error)
            )
            return CopiesState.FAILED

    def _references_with_pool(self) -> set[tuple[str, ConfigReference]]:
        return {(pool, reference) for pool, references in self._referred.values() for reference in references}

    def _find_copies_in_use(self) -> set[CopyPlace]:
        """Returns the copies that the owner's real pods use or that pool pods bound there refer to."""
        now, used = _loop_time(), {copy_place(reference, pool) for pool, reference in self._references_with_pool()}
        for namespace in self._owner_cache.pod_namespaces():
            self._used_at[namespace] = now
        for pod in self._owner_cache.real_pods():
            used |= pod.copies
        self._used_at.update(dict.fromkeys(used, now))
        return used

    async def _update_copy(
        self, pool: Pool, side: PoolSide, reference: ConfigReference, slots: asyncio.Semaphore
    ) -> None:
        """Updates one copy. If the pool has deleted the original, the copy stays as it was, as on any node."""
        async with slots:
            try:
                trouble = await self._ensure_copies(pool, side, (replace(reference, optional=True),))
                if trouble is not None:
                    log.warning(
                        "a copy of a ConfigMap or Secret stays as it was",
                        cluster=self._api.name,
                        pool=side.pool_id,
                        why=trouble.what,
                    )
            except (ClusterUnreachable, Conflict, Refused) as error:
                log.info(
                    "a copy is not compared with its original",
                    cluster=self._api.name,
                    kind=reference.kind,
                    error=str(error),
                )
            except Exception as error:
                if ends_the_process(error):
                    raise
                name = f"{reference.kind} {reference.namespace}/{reference.name}"
                note_failed_work(SERVICE, "copy", error, cluster=self._api.name, pool=side.pool_id, copy=name)

    async def _remove_unused_copies(self, kept: set[CopyPlace]) -> CopiesState:
        """Deletes unused copies, then our empty namespaces. Then forgets the sizes and times of removed objects.

        Copies come first: a namespace is empty only without copies and pods. kept: the copies that are in use.
        """
        namespaces, failed = await self._namespaces.list_our_namespaces(), False
        there: set[CopyPlace | str] = {*kept, *namespaces}
        filled = {copy.namespace for copy in kept}
        for kind, listed in WITHOUT_DATA.items():
            list_copies = partial(self._api.list, listed, label_selector=POOL)
            for found in await self._gate.send_request(list_copies):
                metadata = found["metadata"]
                copy = CopyPlace(kind, metadata["namespace"], metadata["name"])
                if copy.namespace not in namespaces or not is_copy(found):
                    continue
                there.add(copy)
                filled.add(copy.namespace)
                if copy not in kept and self._is_unused(copy):
                    failed |= not await self._delete_copy(KINDS[kind], copy, metadata)
        for name in namespaces.keys() - filled - self._owner_cache.pod_namespaces():
            if self._is_unused(name):
                failed |= not await self._try_deletion(self._namespaces.remove_namespace(namespaces[name]))
        if self._held is not None:
            gone = [copy for copy in self._held if copy not in there and self._is_unused(copy)]
            for copy in gone:
                del self._held[copy]
        # What is counted and was never written keeps its time, too, so that it ends.
        known = there | (self._held or {}).keys()
        self._used_at = {key: at for key, at in self._used_at.items() if key in known}
        if failed:
            return CopiesState.FAILED
        return CopiesState.SOME_LEFT if filled or any(self._owner_cache.real_pods()) else CopiesState.NONE_LEFT

    def _is_unused(self, what: CopyPlace | str) -> bool:
        """Returns whether a copy or namespace has been unused for long enough, or will never be used again.

        If it was never seen in use, the time begins now.
        """
        unused_seconds = _loop_time() - self._used_at.setdefault(what, _loop_time())
        kept_seconds = self._settings.copy_unused_seconds
        return may_remove_copy(unused_seconds, kept_seconds, lends_nothing=self._lends_nothing())

    async def _delete_copy(self, kind: Kind, copy: CopyPlace, metadata: Manifest) -> bool:
        """Deletes a copy. Returns False if the server refused that, as `_try_deletion` does."""
        name, uid, version = metadata["name"], metadata["uid"], metadata["resourceVersion"]
        if not await self._try_deletion(
            self._gate.send_request(
                lambda: self._api.delete(kind, copy.namespace, name, uid=uid, resource_version=version)
            )
        ):
            return False
        if self._held is not None:
            self._held.pop(copy, None)
        about = {"kind": kind.plural, "namespace": copy.namespace, "name": name}
        log.info("removed: no pod refers to it", cluster=self._api.name, **about)
        return True

    async def _try_deletion(self, deletion: Awaitable[object]) -> bool:
        """Awaits a deletion. Returns False if the server refused it; other deletions go on."""
        try:
            await deletion
        except (Conflict, Refused) as error:
            log.warning("an unused copy is not removed yet", cluster=self._api.name, error=str(error))
            return False
        return True


def is_namespace_gone_error(error: Refused) -> bool:
    """Returns whether a create was refused because its namespace is gone or terminating."""
    return isinstance(error, NotFound) or "being terminated" in error.message


def _resource_version_of(copy: Manifest) -> str:
    version: str = (copy["metadata"].get("annotations") or {}).get(COPY_VERSION, "")
    return version


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
