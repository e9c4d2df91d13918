"""Calls clusters with the services' credentials. Checks that they are accepted, when they end, and clusters' clocks."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

from cryptography import x509
from yarl import URL

from spillway.clusters.api import ClusterApiSettings, ClusterUnreachable, HttpTransport
from spillway.clusters.credentials import BadCredentials, Credentials, Endpoint, load_endpoint, tls_context
from spillway.clusters.rights import BRIDGE_OWNER, BRIDGE_POOL, SNAPSHOT, Right
from spillway.kubernetes.objects import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    STATEFULSETS,
    Kind,
)
from spillway.lending_marks import FLEET, LENDING
from spillway_cli.doctor.checks import Check, failed_check, ok_check, shown_names_text, warning_check
from spillway_cli.doctor.services import ENDS_SECONDS_LOW
from spillway_cli.output import duration_text

LISTED = (NODES, PODS, NAMESPACES, RESOURCE_QUOTAS, DEPLOYMENTS, STATEFULSETS, REPLICASETS, JOBS)
"""The kinds that a collector must list in every cluster."""
SKEW_SECONDS_MAX = 5.0
"""The largest skew that is no fault. An answer's date has whole seconds, and the answer takes time."""
MARKED_MAX = 500
"""The most nodes with marks of lending to ask for."""
BRIDGE_CAN_DO_WITHOUT = tuple(
    sorted({*BRIDGE_OWNER.effect_by_optional_right(), *BRIDGE_POOL.effect_by_optional_right()}, key=repr)
)
"""Rights without which the bridge works, but worse. It reports a missing one only in its log."""
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""The API for the rights of one's own account. Every accepted account may use it, and nothing is stored."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The result of one visit.

    expires: the end of the credential, in Unix seconds; None: unknown.
    skew_seconds: how far the cluster's clock is ahead of ours; None: the answer had no date.
    bad: the fault of the credential. trouble: the fault of the call.
    not_known: True if the cluster does not accept the credential.
    denied: the resources that the credential may not list.
    server_expires: the end of the API server's certificate, in Unix seconds.
    marked: (node, fleet id) for each node with the taint of lending.
    service: the service that the credential belongs to.
    lacking: the rights of BRIDGE_CAN_DO_WITHOUT that a bridge's account lacks; None: unknown.
    """

    cluster: str
    credential: str
    expires: float | None = None
    skew_seconds: float | None = None
    bad: str = ""
    trouble: str = ""
    not_known: bool = False
    denied: tuple[str, ...] = ()
    server_expires: float | None = None
    marked: tuple[tuple[str, str], ...] = ()
    service: str = SNAPSHOT.service
    lacking: tuple[Right, ...] | None = ()


def parse_credentials_entry(entry: str) -> tuple[str, Path]:
    """Returns (service, folder of kubeconfigs) of one entry. Without `service=` the service is snapshot."""
    service, _, folder = entry.rpartition("=")
    return service or SNAPSHOT.service, Path(folder)


def is_credential_needed(service: str, folder: Path, credential: str) -> bool:
    """Returns whether a service must have a credential. A bridge needs one only for pools and clusters that lend.

    So a credential that the bridge's folder does not have is no fault.
    """
    return service != BRIDGE_OWNER.service or (folder / f"{credential}.kubeconfig").exists()


async def visit_cluster(
    folder: Path, cluster: str, credential: str, seconds: float, service: str = SNAPSHOT.service
) -> Visit:
    """Calls a cluster and changes nothing there. The calls depend on the service.

    With snapshot's credential it lists one object of each kind. With other credentials it reads the version. With the
    bridge's credential it also asks for the bridge's rights.
    """
    try:
        endpoint = await asyncio.to_thread(load_endpoint, folder, credential)
        expires = credential_expires_at(endpoint)
    except BadCredentials as error:
        return Visit(cluster, credential, bad=str(error), service=service)
    transport = HttpTransport(Credentials(lambda: endpoint), cluster, ClusterApiSettings())
    try:
        async with asyncio.timeout(seconds):
            found = partial(Visit, cluster, credential, expires, service=service)
            answer = await transport.request("GET", "/version", {})
            if answer.status == 401:
                return found(trouble="it does not accept the credential (401)", not_known=True)
            if service == BRIDGE_OWNER.service:
                return found(lacking=await _find_lacking_rights(transport))
            if service != SNAPSHOT.service:
                return found()
            ends = await server_expires_at(endpoint)
            skew = _clock_skew_seconds(answer.date)
            asked = [transport.request("GET", kind.path(), {"limit": "1"}) for kind in LISTED]
            marked = await transport.request("GET", NODES.path(), {"labelSelector": FLEET, "limit": str(MARKED_MAX)})
            statuses = [one.status for one in await asyncio.gather(*asked)]
            denied = tuple(
                _resource_name(kind) for kind, status in zip(LISTED, statuses, strict=True) if status in (401, 403)
            )
            return found(skew, denied=denied, server_expires=ends, marked=_marked_nodes(marked.status, marked.body))
    except ClusterUnreachable as error:
        not_known = error.reason in ("credential", "unauthorized")
        return Visit(cluster, credential, expires, trouble=str(error), not_known=not_known, service=service)
    except TimeoutError:
        return Visit(cluster, credential, expires, trouble=f"no answer within {seconds:g} s", service=service)
    finally:
        await transport.close()


async def _find_lacking_rights(transport: HttpTransport) -> tuple[Right, ...] | None:
    """Returns the rights of BRIDGE_CAN_DO_WITHOUT that the bridge's account lacks; None if they are unknown."""
    has = await asyncio.gather(*(_has_right(transport, right) for right in BRIDGE_CAN_DO_WITHOUT))
    if None in has:
        return None
    return tuple(right for right, given in zip(BRIDGE_CAN_DO_WITHOUT, has, strict=True) if not given)


async def _has_right(transport: HttpTransport, right: Right) -> bool | None:
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes | {"namespace": right.namespace}},
    }
    answer = await transport.request("POST", REVIEWS, {}, json.dumps(review).encode())
    if answer.status != 201:
        return None
    try:
        return bool(json.loads(answer.body)["status"]["allowed"])
    except (ValueError, KeyError, TypeError):
        return None


def _resource_name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _clock_skew_seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return None


def _marked_nodes(status: int, body: bytes) -> tuple[tuple[str, str], ...]:
    """Returns (node, fleet id in its label) for each node with the taint of lending."""
    nodes = json.loads(body).get("items") or () if status == 200 else ()
    return tuple(
        (node["metadata"]["name"], node["metadata"]["labels"][FLEET])
        for node in nodes
        if any(taint.get("key") == LENDING for taint in node["spec"].get("taints") or ())
    )


async def server_expires_at(endpoint: Endpoint) -> float | None:
    """Returns when the certificate of the API server ends, in Unix seconds.

    None without an answer, without verified TLS, and behind a proxy.
    """
    url = URL(endpoint.server)
    if url.scheme != "https" or endpoint.insecure or endpoint.proxy:
        return None
    name = endpoint.tls_server_name or url.host
    try:
        context = await asyncio.to_thread(tls_context, endpoint)
        _, writer = await asyncio.open_connection(url.host, url.port, ssl=context, server_hostname=name)
    except OSError:
        return None  # The server answered a moment ago and does not now; the next visit reports that.
    writer.close()
    shown = writer.get_extra_info("peercert") or {}
    return ssl.cert_time_to_seconds(shown["notAfter"]) if "notAfter" in shown else None


def credential_expires_at(endpoint: Endpoint) -> float | None:
    """Returns the end of the token (a JWT's exp) or client certificate, whichever is first, in Unix seconds."""
    return min(_credential_ends(endpoint), default=None)


def _credential_ends(endpoint: Endpoint) -> Iterator[float]:
    if endpoint.token and endpoint.token.count(".") == 2:
        part = endpoint.token.split(".")[1]
        try:
            # A JWT has no base64 padding, so it is added: up to the next multiple of 4 characters.
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            yield float(claims["exp"])
        except (ValueError, KeyError, TypeError):
            pass  # The token is not a JWT, or it has no end.
    if endpoint.client_certificate:
        try:
            yield x509.load_pem_x509_certificate(endpoint.client_certificate).not_valid_after_utc.timestamp()
        except ValueError as error:
            raise BadCredentials(f"client certificate: expected one that can be read ({error})") from None


def check_visit(found: Visit, now: float) -> Iterable[Check]:
    """Judges a visit. now: Unix seconds."""
    whose = "" if found.service == SNAPSHOT.service else f" of {found.service}"
    name, file = f"credential {found.credential}{whose}", f"{found.credential}.kubeconfig{whose}"
    if found.bad:
        yield failed_check(name, found.bad, f"write {file} again: docs/operations.md, Install")
        return
    left = None if found.expires is None else found.expires - now
    when = "" if found.expires is None else datetime.fromtimestamp(found.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if left is not None and left <= 0:
        yield failed_check(name, f"expired on {when}", f"renew {file}: services read it again by themselves")
        return
    if found.trouble:
        hint = "is its API server up, and is there a way to it from here?"
        hint = f"renew {file}: services read it again by themselves" if found.not_known else hint
        yield failed_check(name, f"{found.cluster}: {found.trouble}", hint)
        return
    if found.denied:
        hint = "give its account the rights of deploy/rbac"
        yield failed_check(name, f"{found.cluster} does not let us list {shown_names_text(found.denied)}", hint)
    elif left is not None and left < ENDS_SECONDS_LOW:
        hint = f"renew {file}: services read it again by themselves"
        yield warning_check(name, f"ends on {when}, in {duration_text(int(left * 1000))}", hint)
    else:
        yield ok_check(name, f"is accepted, {f'until {when}' if when else 'without an end'}")
    if found.server_expires is not None and found.server_expires - now < ENDS_SECONDS_LOW:
        text = f"its API server's certificate ends in {duration_text(int(1000 * (found.server_expires - now)))}"
        hint = "renew it there: afterwards no client accepts that server, and Spillway cannot use the cluster"
        yield warning_check(f"certificate of {found.cluster}", text, hint)
    if found.skew_seconds is not None and abs(found.skew_seconds) > SKEW_SECONDS_MAX:
        text = f"is {abs(found.skew_seconds):.0f} s {'before' if found.skew_seconds > 0 else 'behind'} ours"
        hint = "run NTP on both: certificates, tokens and what people read depend on clocks, decisions do not"
        yield warning_check(f"clock of {found.cluster}", text, hint)
