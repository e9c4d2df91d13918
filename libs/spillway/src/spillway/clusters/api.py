"""The only access to a Kubernetes API: read, write, follow, probe.

It returns values, and raises the errors of errors.py.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final

import msgspec

from spillway.clusters import answers
from spillway.clusters.credentials import Credentials, Endpoint
from spillway.clusters.errors import (
    AlreadyExists,
    ClusterUnreachable,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Refused,
    UnreachableReason,
    WriteHeldBack,
)
from spillway.clusters.lists import Lists
from spillway.clusters.logs import LogOptions, PodLogs
from spillway.clusters.requests import GONE, NOT_FOUND
from spillway.clusters.settings import ClusterApiSettings
from spillway.clusters.transport import (
    HttpTransport,
    MayWrite,
    Response,
    Transport,
    TransportStatus,
    always_may_write,
    may_change,
)
from spillway.clusters.watch import (
    Change,
    FollowingFailed,
    ListedObjects,
    ListedPage,
    ObjectRemoved,
    ObjectUpserted,
    PagesEnded,
    Reflector,
    StreamAlive,
)
from spillway.kubernetes import objects
from spillway.kubernetes.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    NAMESPACES,
    NODE_LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Kind,
    Manifest,
    Manifests,
    Subresource,
)
from spillway.kubernetes.pod_metrics import NODE_METRICS, POD_METRICS, NodeMetrics, PodMetrics
from spillway.kubernetes.resource_versions import version_number

__all__ = [
    "CONFIG_MAPS",
    "DEPLOYMENTS",
    "HORIZONTAL_POD_AUTOSCALERS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "REPLICASETS",
    "RESOURCE_QUOTAS",
    "SECRETS",
    "SERVICES",
    "AlreadyExists",
    "Change",
    "ClusterApiSettings",
    "ClusterUnreachable",
    "Conflict",
    "FollowingFailed",
    "Forbidden",
    "HttpTransport",
    "Kind",
    "ListedObjects",
    "ListedPage",
    "LogOptions",
    "Manifest",
    "Manifests",
    "MayWrite",
    "NotFound",
    "ObjectRemoved",
    "ObjectUpserted",
    "PagesEnded",
    "Refused",
    "Response",
    "StreamAlive",
    "Transport",
    "TransportStatus",
    "UnreachableReason",
    "WriteHeldBack",
    "always_may_write",
    "may_change",
]

MERGE_PATCH: Final = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Probe:
    """The number of nodes and pods of a cluster. version: the pod list's resourceVersion; None: it is not a number."""

    nodes: int
    pods: int
    started_at: float  # By the loop's clock, in seconds, before the first of the two requests.
    version: int | None = None


class ClusterApi(Lists):
    """The API of one cluster. Without a transport of their own, the probe and the logs use `transport`, too."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        settings: ClusterApiSettings,
        *,
        random: Random | None = None,
        probe_transport: Transport | None = None,
        log_transport: Transport | None = None,
    ) -> None:
        super().__init__(transport, name, settings, random or Random())
        self._probe_transport = probe_transport or transport
        self._log_transport = log_transport or transport
        self._logs = PodLogs(self, self._log_transport)

    def follow_objects(
        self, kind: Kind, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[tuple[Change, ...]]:
        """Yields changes without end. A failure is yielded as FollowingFailed and tried again; only a bug raises."""
        return Reflector(self, kind, objects.selector_params(label_selector, field_selector)).changes()

    def follow_in_pages(self, kind: Kind, *, label_selector: str = "") -> AsyncIterator[tuple[Change, ...]]:
        """Follows as `follow_objects` does, but yields lists as ListedPage and PagesEnded: memory holds one page at a
        time."""
        return Reflector(self, kind, objects.selector_params(label_selector, ""), paged=True).changes()

    async def count_nodes_and_pods(self) -> Probe:
        """Counts nodes and pods by quorum reads, so that the answer is from the store and not from a cache."""
        started_at = asyncio.get_running_loop().time()
        (nodes, _), (pods, version) = await self._count_objects(NODES), await self._count_objects(PODS)
        return Probe(nodes, pods, started_at, version_number(version))

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Returns an object; None if it is absent. A quorum read: it sees each write that was answered before."""
        response = await self._send_request("GET", kind.path(namespace, name))
        if self._is_object_absent(response):
            return None
        return self.decode_manifest(kind, self.read_body(response))

    async def list(
        self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Manifests:
        """Returns the objects of a namespace, or of all namespaces if none is given, by a quorum read."""
        return (await self.list_with_version(kind, namespace, label_selector, field_selector))[0]

    async def list_with_version(
        self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[Manifests, str]:
        """Returns the objects as `list` does, and the resourceVersion of the list."""
        params = objects.selector_params(label_selector, field_selector)
        for _ in range(self.settings.read_attempts):
            with suppress(Expired):
                found, version = await self.list_manifests(kind, params, namespace)
                return [*found], version
        raise ClusterUnreachable(self.name, "server", f"the list of {kind.plural} expired before its end, repeatedly")

    async def pod_metrics(self, namespace: str, seconds: float) -> tuple[PodMetrics, ...]:
        """Returns the newest samples of a namespace's pods, by one request.

        Raises ClusterUnreachable with the reason "absent" if the cluster has no such API.
        """
        response = await self._request_metrics(POD_METRICS.path(namespace), seconds)
        return await self.decode_unpaged_list(POD_METRICS, self.read_body(response))

    async def node_metrics(self, seconds: float) -> tuple[NodeMetrics, ...]:
        """Returns the newest samples of all nodes, as pod_metrics does."""
        response = await self._request_metrics(NODE_METRICS.path(), seconds)
        return await self.decode_unpaged_list(NODE_METRICS, self.read_body(response))

    async def _request_metrics(self, path: str, seconds: float) -> Response:
        response = await self._await_response(self._transport.request("GET", path, {}), seconds)
        if response.status == NOT_FOUND:
            raise ClusterUnreachable(self.name, "absent", "metrics.k8s.io is not served")
        return response

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Creates an object. Raises AlreadyExists, or NotFound for its namespace.

        A field that a later apply leaves out stays: see objects.ABSENT.
        """
        path, params = kind.path(kind.namespace_and_name(manifest)[0]), {"fieldManager": self.settings.field_manager}
        return self._decode_written_object(
            await self._send_request("POST", path, params, msgspec.json.encode(manifest)), kind
        )

    async def dry_run_create(self, kind: Kind, namespace: str, manifest: Manifest) -> Manifest:
        """Returns the object as it would be stored, with the changes of admission. Nothing is stored (dryRun=All)."""
        params = {"fieldManager": self.settings.field_manager, "dryRun": "All"}
        answer = await self._send_request("POST", kind.path(namespace), params, msgspec.json.encode(manifest))
        return self._decode_written_object(answer, kind)

    async def apply(
        self, kind: Kind, manifest: Manifest, *, resource_version: str, force: bool, uid: str = ""
    ) -> Manifest:
        """Applies an object.

        Raises Conflict if the object has another version, or if a field has another manager and `force` is False. An
        absent object is created for any resource_version; but if `uid` is given, Conflict is raised instead.
        """
        path = kind.path(*kind.namespace_and_name(manifest))
        params = {"fieldManager": self.settings.field_manager, "force": "true" if force else "false"}
        body = msgspec.json.encode(objects.manifest_at_version(manifest, uid, resource_version))
        return self._decode_written_object(
            await self._send_request("PATCH", path, params, body, "application/apply-patch+yaml"), kind
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Manifest,
        *,
        resource_version: str,
        uid: str = "",
        subresource: Subresource = "",
    ) -> Manifest:
        """Sends a merge patch: only the fields in `change` are touched, null removes one, a list is replaced whole.

        Raises Conflict for another object or version (an empty one is not compared), and NotFound for an absent object:
        a patch never creates. subresource "status": changes only the status.
        """
        body = msgspec.json.encode(objects.manifest_at_version(change, uid, resource_version))
        params = {"fieldManager": self.settings.field_manager}
        path = kind.path(namespace, name, subresource)
        return self._decode_written_object(await self._send_request("PATCH", path, params, body, MERGE_PATCH), kind)

    async def replace(self, kind: Kind, manifest: Manifest, *, subresource: Subresource = "") -> Manifest:
        """Replaces a whole object, at the uid and resourceVersion of the manifest. Raises Conflict, NotFound."""
        path, params = (
            kind.path(*kind.namespace_and_name(manifest), subresource),
            {"fieldManager": self.settings.field_manager},
        )
        return self._decode_written_object(
            await self._send_request("PUT", path, params, msgspec.json.encode(manifest)), kind
        )

    async def renew_node_lease(
        self, node: str, node_uid: str, holder: str, *, duration_seconds: int, renewed_at: datetime
    ) -> Manifest:
        """Renews a node's Lease, without which the node counts as not ready. Creates the Lease if it is absent."""
        lease = objects.node_lease(node, node_uid, holder, duration_seconds, renewed_at)
        try:
            return await self.patch(LEASES, NODE_LEASES, node, lease, resource_version="")
        except NotFound:
            with suppress(AlreadyExists):
                return await self.create(LEASES, lease)
            return await self.patch(LEASES, NODE_LEASES, node, lease, resource_version="")

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> Manifest:
        """Deletes an object. Raises Conflict for another object or version. An absent object is no error.

        grace_seconds: for a pod, instead of its own; 0 deletes it at once, though it may still run on its node. Returns
        the server's answer: the object in its last state so far, or a Status; empty for an absent object.
        """
        body = msgspec.json.encode(objects.delete_options(uid, resource_version, grace_seconds))
        response = await self._send_request("DELETE", kind.path(namespace, name), body=body)
        return {} if self._is_object_absent(response) else self._decode_write_answer(response)

    async def delete_collection(
        self,
        kind: Kind,
        namespace: str,
        *,
        field_selector: str,
        label_selector: str = "",
        as_of_version: str = "",
        grace_seconds: int | None = None,
    ) -> Manifests:
        """Deletes the objects that these selectors match. The API server lists them and deletes each by its name.

        as_of_version: the list is as of this version, so newer objects are not in it. Raises Conflict if the server no
        longer has that version. No uid is compared: a newer object with a listed name is deleted, too. Absent objects
        are skipped. Raises Refused if one delete is refused; others may have been done. Returns the listed objects.
        """
        if not (namespace and field_selector):
            raise ValueError(f"a collection of {kind.plural}: expected a namespace and a field selector")
        body = msgspec.json.encode(objects.delete_options("", "", grace_seconds))
        params = objects.selector_params(label_selector, field_selector)
        if as_of_version:
            params |= {"resourceVersion": as_of_version, "resourceVersionMatch": "Exact"}
        response = await self._send_request("DELETE", kind.path(namespace), params, body)
        if response.status == GONE:
            raise Conflict("Expired", answers.read_status(response.body).message)
        if not 200 <= response.status < 300:
            self.raise_refusal(response)
        return [*await self.decode_unpaged_list(kind, response.body, whole=True)]

    def container_log_chunks(self, namespace: str, pod: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yields the log of a container in chunks that may end anywhere, for `log_stream_seconds` at most.

        Raises before the first chunk: NotFound if the pod does not exist; Refused if its container has not started or
        must be named, or if `log_streams_max` logs are open already. The caller must close it with `aclosing`.
        """
        return self._logs.read_log_chunks(namespace, pod, options)

    def write_only_while(self, may_write: MayWrite) -> None:
        """Calls may_write directly before each write. If it returns False, the write raises WriteHeldBack instead."""
        self._transport.may_write = may_write

    async def close(self) -> None:
        transports = (self._transport, self._probe_transport, self._log_transport)
        for transport in {id(one): one for one in transports}.values():
            await transport.close()

    async def _count_objects(self, kind: Kind) -> tuple[int, str]:
        """Returns the number of objects of a kind, and the resourceVersion of the list that gave it."""
        call = self._probe_transport.request("GET", kind.path(), {"limit": "1"})
        response = await self._await_response(call, self.settings.probe_timeout_seconds)
        page = self.count_page_objects(kind, self.read_body(response), 1 + self.settings.page_slack_objects)
        total = page.object_count_from_here()
        if total is None:
            raise ClusterUnreachable(self.name, "garbage", f"a page of {kind.plural} without remainingItemCount")
        return total, page.metadata.resource_version


def make_cluster_api(
    read_endpoint: Callable[[], Endpoint], name: str, settings: ClusterApiSettings, random: Random | None = None
) -> ClusterApi:
    """Returns the API of a cluster over HTTP. It connects at the first request.

    read_endpoint: called in a thread of its own, and again after a 401.
    """
    credentials = Credentials(read_endpoint)
    for_logs = replace(settings, connections_max=settings.log_streams_max, answer_bounds=settings.log_answer_bounds)
    transport, probe_transport, log_transport = (
        HttpTransport(credentials, name, one) for one in (settings, settings, for_logs)
    )
    return ClusterApi(
        transport, name, settings, random=random, probe_transport=probe_transport, log_transport=log_transport
    )
