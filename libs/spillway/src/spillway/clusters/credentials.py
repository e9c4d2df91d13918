"""Reads the credential of a cluster, and opens sessions with the Kubernetes API that it names.

A credential is a kubeconfig file `<folder>/<name>.kubeconfig`, YAML or JSON. We read it without a library: the known
libraries do not name the wrong field, and they leave private keys in files (docs/adr/0035).
"""

import asyncio
import base64
import re
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from yarl import URL

from spillway.clusters.endpoint import BadCredentials, Endpoint, Proxy, stamps_of
from spillway.clusters.exec_plugins import ask_plugin
from spillway.clusters.kubeconfig import ConfigField, read_kubeconfig
from spillway.clusters.renewals import Credentials
from spillway.clusters.settings import PluginBounds
from spillway.http_client import AnswerBounds, open_session

__all__ = ["BadCredentials", "Credentials", "Endpoint", "Proxy", "Session", "load_endpoint", "tls_context"]

NAME: Final = re.compile(r"[a-z0-9-]+")
UNAUTHORIZED: Final = 401
PROXY_UNAUTHORIZED: Final = 407
REFUSED_LOGINS: Final = {
    "auth-provider": "an exec plugin in its place: Kubernetes 1.26 removed auth providers",
    "username": "a token, not a password",
    "password": "a token, not a password",
    **dict.fromkeys(("as", "as-uid", "as-groups", "as-user-extra"), "no impersonation: an account of our own"),
}
LOGIN_FILES: Final = ("tokenFile", "client-certificate", "client-key")


def load_endpoint(folder: Path, name: str, *, allow_exec: bool = False, bounds: PluginBounds | None = None) -> Endpoint:
    """Reads the kubeconfig and its files, and waits for an exec plugin if it names one. Raises BadCredentials.

    Call it in a thread of its own. allow_exec: True if a plugin may run. bounds: the limits of its run.
    """
    if not NAME.fullmatch(name):
        raise BadCredentials(f"credential name {name!r}: expected lower-case letters, digits and hyphens")
    config = read_kubeconfig(folder / f"{name}.kubeconfig")
    context = config.find_named_entry("contexts", config, "current-context", "context")
    cluster = config.find_named_entry("clusters", context, "cluster", "cluster")
    user = config.find_named_entry("users", context, "user", "user") if "user" in context.value else None
    endpoint = Endpoint(
        server=_read_server_url(cluster),
        ca=cluster.read_pem("certificate-authority"),
        insecure=cluster.read_flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.read_text("tls-server-name") if "tls-server-name" in cluster.value else None,
        proxy=_read_proxy(cluster) if cluster.has_value("proxy-url") else None,
    )
    if user is None:
        return endpoint
    for key, expected in REFUSED_LOGINS.items():
        if user.has_value(key):
            user.raise_wrong_value(key, expected)
    if user.value.get("exec") is None:
        return replace(endpoint, **_read_login(user))
    if not allow_exec:
        user.raise_wrong_value("exec", "no exec plugin, since the settings do not allow them")
    answer = ask_plugin(user, cluster, endpoint.ca, bounds or PluginBounds())
    return replace(
        endpoint,
        token=answer.token,
        client_certificate=answer.client_certificate,
        client_key=answer.client_key,
        ends_at=answer.ends_at,
    )


def _read_server_url(cluster: ConfigField) -> str:
    server = cluster.read_text("server").rstrip("/")
    url = _parse_url(cluster, "server", "a URL with http or https", server)
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.user:
        cluster.raise_wrong_value("server", "a URL with http or https, a host, and neither user nor query")
    return server


def _read_proxy(cluster: ConfigField) -> Proxy:
    expected = "the URL of a proxy, http://host:port or https://host:port, with user:password@ where it asks for them"
    url = _parse_url(cluster, "proxy-url", expected, cluster.read_text("proxy-url"))
    if url.scheme.startswith("socks"):
        cluster.raise_wrong_value("proxy-url", "a proxy that is asked by http or https: SOCKS is not supported")
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.path not in ("", "/"):
        cluster.raise_wrong_value("proxy-url", expected)
    login = f"{url.user or ''}:{url.password or ''}" if url.user or url.password else ""
    if ":" in (url.user or ""):
        cluster.raise_wrong_value("proxy-url", "a user without a colon")
    authorization = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
    return Proxy(str(url.with_user(None)), authorization)


def _parse_url(cluster: ConfigField, key: str, expected: str, text: str) -> URL:
    try:
        return URL(text)
    except ValueError:
        cluster.raise_wrong_value(key, expected)


def _read_login(user: ConfigField) -> dict[str, Any]:
    files = stamps_of(user.file_path(key) for key in LOGIN_FILES if user.has_value(key))  # Before any file is read.
    certificate, private = user.read_pem("client-certificate"), user.read_pem("client-key")
    if (certificate is None) != (private is None):
        user.raise_wrong_value(
            "client-key" if private is None else "client-certificate", "a client certificate and its key together"
        )
    token = user.read_token("token") if "token" in user.value else None
    if token is None and "tokenFile" in user.value:
        token = user.check_token("tokenFile", user.read_named_file("tokenFile").decode(errors="replace").strip())
    return {"token": token, "client_certificate": certificate, "client_key": private, "files": files}


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Returns the TLS settings for an endpoint. Raises BadCredentials for an unusable certificate or key.

    They are written to a temporary file, which is deleted before this function returns.
    """
    try:
        context = ssl.create_default_context(cadata=endpoint.ca.decode() if endpoint.ca else None)
        if endpoint.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if endpoint.client_certificate and endpoint.client_key:
            with tempfile.NamedTemporaryFile() as file:  # It has mode 0600. OpenSSL reads these only from files.
                file.write(endpoint.client_certificate + b"\n" + endpoint.client_key)
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise BadCredentials(f"certificates for {endpoint.server}: expected usable PEM ({error})") from error
    return context


class Session:
    """Connections to one API server, with our credentials on every request.

    After a 401, or if the server cannot be reached, the endpoint is read again: it may have been renewed or moved.
    """

    def __init__(
        self, credentials: Credentials, connect_timeout_seconds: float, limit: int, bounds: AnswerBounds
    ) -> None:
        self._credentials = credentials
        self._connect_timeout_seconds = connect_timeout_seconds
        self._limit = limit
        self._bounds = bounds
        self._opened: tuple[Endpoint, aiohttp.ClientSession] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def send_request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: aiohttp.Payload | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        endpoint, session = await self._open_session()
        url = URL(endpoint.server + path, encoded=True).with_query(params)
        known = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        proxy = endpoint.proxy
        for_proxy: dict[str, str] = {}
        if proxy is not None and proxy.authorization:
            # Inside a TLS tunnel the proxy sees no header of ours. Without TLS there is no tunnel.
            (for_proxy if url.scheme == "https" else known)["Proxy-Authorization"] = proxy.authorization
        try:
            async with session.request(
                method,
                url,
                headers={**headers, **known},
                data=body,
                allow_redirects=False,  # A redirect would send our token to another server.
                server_hostname=endpoint.tls_server_name,
                proxy=proxy.url if proxy else None,
                proxy_headers=for_proxy,
            ) as answer:
                if answer.status in (UNAUTHORIZED, PROXY_UNAUTHORIZED):
                    self._credentials.discard_endpoint(endpoint)
                yield answer
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError):
            self._credentials.discard_endpoint(endpoint)
            raise

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[1].close()

    async def _open_session(self) -> tuple[Endpoint, aiohttp.ClientSession]:
        endpoint = await self._credentials.current_endpoint()
        if self._opened is not None and self._opened[0] is endpoint:
            return self._opened
        async with self._opening:
            endpoint = await self._credentials.current_endpoint()  # Another task may have read a later one.
            if self._opened is not None and not self._opened[0].has_same_connections(endpoint):
                await self.close()
            session = self._make_session(endpoint) if self._opened is None else self._opened[1]
            self._opened = (endpoint, session)
            return self._opened

    def _make_session(self, endpoint: Endpoint) -> aiohttp.ClientSession:
        # The caller bounds whole requests, because it knows whether a request is a watch or a read.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_seconds)
        return open_session(self._limit, timeout, tls=tls_context(endpoint), bounds=self._bounds)
