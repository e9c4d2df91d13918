"""Reads and writes the objects of one workload in one cluster. Carries out an Action, returns the state after it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Final, TypeVar

import structlog

from propagator.cluster.namespaces import ClusterNamespaces
from propagator.core.actions import (
    Apply,
    ApplyDependency,
    Create,
    Delete,
    DeleteDependency,
    EnsureNamespace,
    Look,
    LookForRivals,
    PatchDependencyMarks,
    PatchMarks,
    PatchReplicas,
    Question,
    ReadAfresh,
    ScaleDown,
    Write,
)
from propagator.core.adoption_answers import has_scale_target
from propagator.core.desired import PartTarget
from propagator.core.kinds import DEPLOYMENT, KINDS
from propagator.core.live import (
    IN_NO_NAMESPACE,
    LABEL_FLEET,
    DependencyReference,
    LiveState,
    dependency_from_manifest,
    managed_fields,
    replicas_managers,
    workload_from_manifest,
)
from propagator.core.manifests import Manifest
from propagator.settings import PropagatorSettings
from spillway import metrics
from spillway.clusters.api import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    AlreadyExists,
    ClusterApi,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
)
from spillway.kubernetes.live_objects import manifest_of_live_object
from spillway.kubernetes.objects import (
    ABSENT,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    VOLUME_CLAIMS,
    Kind,
    is_object_name,
)
from spillway.kubernetes.pod_security import ANY, ENFORCE_LABEL

T = TypeVar("T")

KIND_BY_NAME: Final = {
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
    "Secret": SECRETS,
    "Namespace": NAMESPACES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "PersistentVolumeClaim": VOLUME_CLAIMS,
    "PriorityClass": PRIORITY_CLASSES,
    "RuntimeClass": RUNTIME_CLASSES,
}
NEEDED_RIGHTS: Final = frozenset(("ConfigMap", "Namespace"))
"""Kinds that the account must be allowed to read. Without these rights, nothing could be written either."""

log = structlog.get_logger()


class ClusterObjects:
    """The objects in one cluster, as its API has them: read and written for one workload at a time.

    Conflict, Refused and ClusterUnreachable reach the caller.
    """

    def __init__(
        self,
        api: ClusterApi,
        fleet: str,
        clock: Callable[[], float],
        answered: Callable[[], None],
        namespaces: ClusterNamespaces,
        settings: PropagatorSettings,
    ) -> None:
        self._api = api
        self._fleet = fleet
        self._clock = clock
        self._answered = answered
        self.namespaces = namespaces
        self._settings = settings
        self._not_looked_for: set[PartTarget] = set()

    async def read_live_state(
        self, target: PartTarget, references: Iterable[DependencyReference], kind: str = DEPLOYMENT
    ) -> LiveState:
        """Reads the workload's object and these dependencies of any owner, from the store and not from a cache."""
        names = sorted(references)
        workload = self._get_object(KINDS[kind].served, target.namespace, target.name)
        dependencies = (self._get_object(KIND_BY_NAME[ref.kind], target.namespace, ref.name) for ref in names)
        manifests = await self._gather_in_groups(chain((workload,), dependencies))
        return _live_state_with_workload(
            LiveState(
                read=True,
                dependencies={
                    ref: dependency_from_manifest(found)
                    for ref, found in zip(names, manifests[1:], strict=True)
                    if found is not None
                },
            ),
            manifests[0],
            kind,
        )

    async def carry_out_action(self, action: Write | Question, target: PartTarget, live: LiveState) -> LiveState:
        """Carries out the action and returns the state after it.

        live: the known state. It contains the object that a Delete or a patch is about.
        """
        kind_there = live.workload.kind if live.workload is not None else DEPLOYMENT
        there = KINDS[kind_there].served
        match action:
            case Look(references):
                return live.with_lookup_results(await self.existence_by_reference(target, references))
            case LookForRivals():
                return replace(live, rivals=await self._find_rival_scalers(target, live))
            case ReadAfresh(of_kind):
                return await self.read_live_state(target, live.dependencies, of_kind)
            case (
                PatchMarks(change, resource_version)
                | PatchReplicas(change, resource_version)
                | ScaleDown(change, resource_version)
            ):
                made = await self._patch_object(there, target, target.name, change, resource_version)
                return _live_state_with_workload(live, made, kind_there)
            case PatchDependencyMarks(reference, change, resource_version):
                kind = KIND_BY_NAME[reference.kind]
                made = await self._patch_object(kind, target, reference.name, change, resource_version)
                return live.with_dependency(reference, dependency_from_manifest(made))
            case EnsureNamespace(name):
                await self._ensure_namespace(name)
                return live.with_lookup_results({DependencyReference("Namespace", name): True})
            case Create(manifest):
                made = await self._apply_object(KINDS[manifest["kind"]].served, manifest, ABSENT)
                return _live_state_with_workload(replace(live, read=True), made, manifest["kind"])
            case Apply(manifest, resource_version):
                made = await self._apply_object(KINDS[manifest["kind"]].served, manifest, resource_version)
                return _live_state_with_workload(live, made, manifest["kind"])
            case Delete(uid, resource_version):
                await self._delete_object(there, target.namespace, target.name, (uid, resource_version))
                return _live_state_with_workload(
                    live, await self._get_object(there, target.namespace, target.name), kind_there
                )
            case ApplyDependency(reference, manifest, resource_version):
                made = await self._apply_object(KIND_BY_NAME[reference.kind], manifest, resource_version or ABSENT)
                return live.with_dependency(reference, dependency_from_manifest(made))
            case DeleteDependency(reference, uid, resource_version):
                kind = KIND_BY_NAME[reference.kind]
                await self._delete_object(kind, target.namespace, reference.name, (uid, resource_version))
                found = await self._get_object(kind, target.namespace, reference.name)
                return live.with_dependency(reference, dependency_from_manifest(found) if found else None)

    async def existence_by_reference(
        self, target: PartTarget, references: frozenset[DependencyReference]
    ) -> dict[DependencyReference, bool]:
        """Returns for each reference whether the object exists.

        References beyond references_max count as existing, which is logged once in a turn. Pods of such a template wait
        for the missing objects themselves, and no other workload waits.
        """
        names = sorted(references)
        asked, beyond = names[: self._settings.references_max], names[self._settings.references_max :]
        if beyond and target not in self._not_looked_for:
            self._not_looked_for.add(target)
            about = {"cluster": self._api.name, "workload": f"{target.namespace}/{target.name}"}
            log.warning(
                "some objects that a template names are taken as present: too many to look for",
                **about,
                count=len(beyond),
                first=str(beyond[0]),
            )
        found = await self._gather_in_groups(
            self._is_taken_as_existing(target.namespace, reference) for reference in asked
        )
        return {**dict(zip(asked, found, strict=True)), **dict.fromkeys(beyond, True)}

    async def _gather_in_groups(self, calls: Iterator[Awaitable[T]]) -> list[T]:
        """Returns the answers in order. Calls after the first group with a failure are not made."""
        answers: list[T] = []
        while few := tuple(islice(calls, self._settings.references_at_once)):
            answers += await asyncio.gather(*few)
        return answers

    async def _find_rival_scalers(self, target: PartTarget, live: LiveState) -> tuple[str, ...]:
        """Returns, for users, the autoscalers of the object and the other field managers of its replicas."""
        kind = live.workload.kind if live.workload is not None else DEPLOYMENT
        managers = [name for name in live.replicas_managers if name != self._api.settings.field_manager]
        try:
            listed = await self._run_counted_call("read", self._api.list(HORIZONTAL_POD_AUTOSCALERS, target.namespace))
        except ClusterUnreachable as error:
            if error.reason not in ("forbidden", "garbage"):
                raise
            log.info("autoscalers cannot be listed", cluster=self._api.name, error=str(error))
            listed = []  # The account may not list autoscalers, or the cluster does not serve them.
        scalers = [one["metadata"]["name"] for one in listed if has_scale_target(one, target.name, kind)]
        return (
            *(f"HorizontalPodAutoscaler {name}" for name in sorted(scalers)),
            *(f"field manager {name}" for name in managers),
        )

    async def _is_taken_as_existing(self, namespace: str, reference: DependencyReference) -> bool:
        """Returns whether the cluster has an object that a template names.

        A missing right affects this workload only and does not make the cluster lost; the object then counts as there.
        A name that no object can have counts as missing without a request, because the request would go elsewhere. Old
        declarations may contain such names.
        """
        if not is_object_name(reference.name):
            return False
        try:
            return await self._is_object_found(namespace, reference)
        except ClusterUnreachable as error:
            if error.reason != "forbidden":
                raise
            if reference.kind in NEEDED_RIGHTS:
                raise Forbidden(self._api.name, error.detail) from error
            log.info(
                "an object that a template names is taken as present: the account may not read it",
                reference=str(reference),
                error=str(error),
            )
            return True

    async def _is_object_found(self, namespace: str, reference: DependencyReference) -> bool:
        if reference.kind == "Namespace":
            return await self._has_namespace(reference.name)
        if reference.kind == "Secret":
            # A list asks for metadata alone, so that no secret's content ever comes here.
            listed = self._api.list(SECRETS, namespace, field_selector=f"metadata.name={reference.name}")
            return bool(await self._run_counted_call("read", listed))
        namespace = "" if reference.kind in IN_NO_NAMESPACE else namespace
        return await self._get_object(KIND_BY_NAME[reference.kind], namespace, reference.name) is not None

    async def _has_namespace(self, name: str) -> bool:
        if not self.namespaces.has_namespace(name) and await self._get_object(NAMESPACES, "", name) is not None:
            self.namespaces.note_namespace_existing(name)
        return self.namespaces.has_namespace(name)

    async def _ensure_namespace(self, name: str) -> None:
        """Creates a namespace that enforces Pod Security.

        An existing one keeps its labels, because it belongs to somebody else.
        """
        level = self._settings.namespace_pod_security
        enforced = {} if level == ANY else {ENFORCE_LABEL: level}
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {LABEL_FLEET: self._fleet, **enforced}},
        }
        try:
            await self._create_object(NAMESPACES, manifest)
        except AlreadyExists:
            return  # Somebody created it first, which is just as good.
        self.namespaces.note_namespace_existing(name)
        log.info("namespace created", cluster=self._api.name, namespace=name)

    async def _get_object(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._run_counted_call("read", self._api.get(kind, namespace, name))

    async def _create_object(self, kind: Kind, manifest: Manifest) -> Manifest:
        return await self._run_counted_call("create", self._api.create(kind, manifest))

    async def _apply_object(self, kind: Kind, manifest: Manifest, resource_version: str) -> Manifest:
        # The apply is forced, because it must overwrite the changes of other managers. Earlier rules have checked that
        # the object is ours.
        call = self._api.apply(kind, manifest, resource_version=resource_version, force=True)
        namespace = manifest["metadata"]["namespace"]
        try:
            return await self._run_counted_call("create" if resource_version == ABSENT else "apply", call)
        except NotFound as error:
            if not self.namespaces.has_namespace(namespace):
                raise
            self.namespaces.forget_namespace(namespace)
            raise Conflict(error.reason, f"perhaps gone since it was seen: {error.message}") from error

    async def _patch_object(
        self, kind: Kind, target: PartTarget, name: str, change: Manifest, resource_version: str
    ) -> Manifest:
        call = self._api.patch(kind, target.namespace, name, change, resource_version=resource_version)
        try:
            return await self._run_counted_call("patch", call)
        except NotFound as error:
            raise Conflict(error.reason, f"gone since it was read: {error.message}") from error

    async def _delete_object(self, kind: Kind, namespace: str, name: str, seen: tuple[str, str]) -> None:
        uid, resource_version = seen
        call = self._api.delete(kind, namespace, name, uid=uid, resource_version=resource_version)
        await self._run_counted_call("delete", call)

    async def _run_counted_call(self, verb: str, call: Awaitable[T]) -> T:
        began = self._clock()
        outcome = "done"
        try:
            return await call
        except Conflict:
            outcome = "conflict"
            raise
        except Refused:
            outcome = "refused"
            raise
        except ClusterUnreachable:
            outcome = "unreachable"
            raise
        finally:
            if outcome != "unreachable":
                self._answered()
            metrics.OPERATIONS.labels(verb, outcome).inc()
            metrics.OPERATION_SECONDS.labels(verb).observe(self._clock() - began)


def _live_state_with_workload(live: LiveState, manifest: Manifest | None, kind: str) -> LiveState:
    """Returns the LiveState with the object of this answer in it. kind: the kind that was asked for."""
    if manifest is None:
        return replace(live, workload=None, spec=None, managed=(), replicas_managers=())
    return replace(
        live,
        workload=workload_from_manifest(manifest, kind),
        spec=manifest_of_live_object(manifest, kind, KINDS[kind].api_version)["spec"],
        managed=managed_fields(manifest),
        replicas_managers=replicas_managers(manifest, kind),
    )
