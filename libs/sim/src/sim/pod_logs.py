"""Streams a pod's log as the API server does: from the simulated kubelet, or from the one that a virtual node names."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import aiohttp

from sim.cluster import SimCluster
from sim.core.errors import ApiError, bad_request, not_found
from sim.core.kinds import KIND_BY_PLURAL, Object
from sim.core.pod_logs import Asked, check_container_started, parse_log_request
from sim.core.pods import is_terminal
from sim.core.routes import Route, parse_route
from spillway.http_client import LOG_ANSWERS, open_session

_PODS = KIND_BY_PLURAL["pods"]
_ADDRESSES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
"""The types of a node's addresses, in the order in which kube-apiserver tries them by default."""
_CONNECT_SECONDS = 5.0


def is_log_path(path: str) -> bool:
    try:
        route = parse_route(path)
    except ApiError:
        return False
    return route.kind is _PODS and route.subresource == "log"


async def log_chunks(
    cluster: SimCluster, route: Route, params: Mapping[str, str], is_over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Yields an empty chunk once the log is open, then its text. Ends with the pod, or once `is_over` returns True.

    Raises ApiError before the first chunk.
    """
    pod = cluster.get_object("pods", route.name, route.namespace)
    if pod is None:
        raise not_found(_PODS, route.name)
    asked = parse_log_request(pod, params, cluster.control_plane.world.unix_seconds)
    node = pod["spec"].get("nodeName", "")
    if not node:
        yield b""
        return
    if cluster.control_plane.kubelet.is_simulated_node(node):
        check_container_started(pod, asked, params)
        chunks = _simulated_log_chunks(cluster, pod, asked, is_over)
    else:
        found = cluster.get_object("nodes", node)
        place = f"{route.namespace}/{route.name}/{asked.container}"
        chunks = _kubelet_log_chunks(found or {}, place, params, cluster.settings.kubelet_client)
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        await chunks.aclose()


async def _simulated_log_chunks(
    cluster: SimCluster, pod: Object, asked: Asked, is_over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    yield b""
    logs, metadata, position = cluster.control_plane.logs, pod["metadata"], None
    left, waker = asked.limit_bytes, asyncio.Event()
    cluster.add_waker("pods", waker)
    try:
        while not is_over():
            waker.clear()
            current = cluster.control_plane.world.object_with_uid(
                "pods", (metadata["namespace"], metadata["name"]), metadata["uid"]
            )
            text, position = logs.read_lines(current or pod, asked, position)
            if text:
                yield text if left is None else text[:left]
            left = None if left is None else left - len(text)
            if not asked.follow or current is None or is_terminal(current) or (left is not None and left <= 0):
                return
            await waker.wait()
    finally:
        cluster.remove_waker("pods", waker)


async def _kubelet_log_chunks(
    node: Object, place: str, params: Mapping[str, str], client: tuple[str, str] | None
) -> AsyncGenerator[bytes, None]:
    """Yields a kubelet's log over HTTPS. Any certificate is accepted, as by an API server without a kubelet CA."""
    address, port = _kubelet_endpoint(node)
    asked = {name: value for name, value in params.items() if name != "container"}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    url = f"https://{address}:{port}/containerLogs/{place}"
    try:
        async with (
            open_session(1, timeout, bounds=LOG_ANSWERS) as session,
            session.get(url, params=asked, ssl=_unverified_tls_context(client)) as answer,
        ):
            if answer.status != 200:
                raise _kubelet_refusal(answer.status, await answer.text())
            yield b""
            async for chunk in answer.content.iter_any():
                yield chunk
    except (aiohttp.ClientError, OSError) as error:
        raise ApiError(500, "InternalError", f'Internal error occurred: Get "{url}": {error}') from error


def _unverified_tls_context(client: tuple[str, str] | None) -> ssl.SSLContext:
    """Returns a TLS context that accepts any server. client: files of the certificate and key to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None:
        context.load_cert_chain(*client)
    return context


def _kubelet_endpoint(node: Object) -> tuple[str, int]:
    status: dict[str, Any] = node.get("status") or {}
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or ()}
    address = next((addresses[kind] for kind in _ADDRESSES if kind in addresses), "")
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    if not address or not port:
        raise ApiError(500, "InternalError", "Internal error occurred: the node names no address of a kubelet")
    return address, port


def _kubelet_refusal(status: int, text: str) -> ApiError:
    if status == 400:
        return bad_request(text)
    if status == 404:
        return ApiError(404, "NotFound", f"the server could not find the requested resource: {text}")
    return ApiError(500, "InternalError", f"Internal error occurred: {text}")
