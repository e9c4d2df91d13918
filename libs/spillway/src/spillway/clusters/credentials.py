"""Which Kubernetes API a credential name stands for, and how one is let in there.

A credential is a kubeconfig file `<folder>/<name>.kubeconfig`, YAML or JSON. It is read here and not with
kubernetes-asyncio, which cannot say which field is wrong, writes private keys to files that stay, and takes 1.5 s to
import; only exec plugins, off unless allowed, run through it.
"""

import asyncio
import base64
import binascii
import re
import ssl
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import aiohttp
import yaml
from yarl import URL

from spillway.http_client import AnswerBounds, open_session
from spillway.yaml_text import read_yaml

NAME: Final = re.compile(r"[a-z0-9-]+")
MAX_FILE_BYTES: Final = 4 * 2**20
UNAUTHORIZED: Final = 401
EXEC_TIMEOUT_SECONDS: Final = 30.0
REFUSED_LOGINS: Final = {"auth-provider": "a token or a client certificate", "username": "a token, not a password"}


class BadCredentials(Exception):
    """Which file and field is wrong, and what was expected there; never what stands there, since it may be secret."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Kubernetes API and our credentials for it; secrets are kept out of its repr."""

    server: str
    ca: bytes | None = None  # PEM; None is the system's own trust store
    token: str | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)  # PEM
    client_key: bytes | None = field(default=None, repr=False)  # PEM
    insecure: bool = False
    tls_server_name: str | None = None


def load_endpoint(folder: Path, name: str, *, allow_exec: bool = False) -> Endpoint:
    """Reads files, and waits for an exec plugin if there is one: call it in a thread."""
    if not NAME.fullmatch(name):
        raise BadCredentials(f"credential name {name!r}: expected lower-case letters, digits and hyphens")
    path = folder / f"{name}.kubeconfig"
    config = _Node(path, "", _parsed(path))
    context = config.named("contexts", config, "current-context", "context")
    cluster = config.named("clusters", context, "cluster", "cluster")
    user = config.named("users", context, "user", "user") if "user" in context.value else None
    server = cluster.text("server").rstrip("/")
    try:
        url = URL(server)
    except ValueError:
        cluster.wrong("server", "a URL with http or https")
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.user:
        cluster.wrong("server", "a URL with http or https, a host, and neither user nor query")
    if "proxy-url" in cluster.value:
        cluster.wrong("proxy-url", "no proxy")
    return Endpoint(
        server=server,
        ca=cluster.content("certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name") if "tls-server-name" in cluster.value else None,
        **(_login(user, allow_exec) if user else {}),
    )


def _login(user: "_Node", allow_exec: bool) -> dict[str, Any]:
    for key, expected in REFUSED_LOGINS.items():
        if key in user.value:
            user.wrong(key, expected)
    if "exec" in user.value:
        if not allow_exec:
            user.wrong("exec", "no exec plugin, since the settings do not allow them")
        return _executed(user)
    certificate, private = user.content("client-certificate"), user.content("client-key")
    if (certificate is None) != (private is None):
        user.wrong(
            "client-key" if private is None else "client-certificate", "a client certificate and its key together"
        )
    token = user.text("token") if "token" in user.value else None
    if token is None and "tokenFile" in user.value:
        token = user.file("tokenFile").decode(errors="replace").strip()
    if token is not None and not (token.isascii() and token.isprintable() and token):
        user.wrong("token" if "token" in user.value else "tokenFile", "a token of one line")
    return {"token": token, "client_certificate": certificate, "client_key": private}


def _executed(user: "_Node") -> dict[str, Any]:
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode

    try:
        plugin = ConfigNode(f"{user.place}.exec", user.value["exec"])
        running = ExecProvider(plugin).run()
        status: Mapping[str, str] = asyncio.run(asyncio.wait_for(running, EXEC_TIMEOUT_SECONDS))
    except Exception as error:  # It raises what it likes, and its message may quote a secret.
        user.wrong("exec", f"a plugin that answers with credentials ({type(error).__name__})")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not status.get("token") and not (certificate and key):
        user.wrong("exec", "a plugin that answers with a token, or a client certificate and its key")
    return {
        "token": status.get("token"),
        "client_certificate": certificate.encode() if certificate else None,
        "client_key": key.encode() if key else None,
    }


def _parsed(path: Path) -> object:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadCredentials(f"{path}: expected at most {MAX_FILE_BYTES} bytes")
        return read_yaml(path.read_bytes())
    except FileNotFoundError as error:
        raise BadCredentials(f"{path}: there is no such file") from error
    except OSError as error:
        raise BadCredentials(f"{path}: expected a readable file ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        # No cause: a parser's message quotes the line, and the line may hold a secret.
        raise BadCredentials(f"{path}: expected a kubeconfig in YAML or JSON, and it is neither") from None


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the file that knows where it stands, so that every error can say so."""

    path: Path
    place: str
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict | list):
            place = self.place or "the file"
            raise BadCredentials(f"{self.path}: {place}: expected a mapping or list, not {_kind(self.value)}")

    def wrong(self, key: str, expected: str, cause: Exception | None = None) -> NoReturn:
        place = f"{self.place}.{key}".lstrip(".")
        found = _kind(self.value.get(key)) if isinstance(self.value, dict) else _kind(self.value)
        raise BadCredentials(f"{self.path}: {place}: expected {expected}, found {found}") from cause

    def child(self, key: str) -> "_Node":
        if not isinstance(self.value, dict) or not isinstance(self.value.get(key), dict | list):
            self.wrong(key, "a list" if not self.place else "a mapping")
        return _Node(self.path, f"{self.place}.{key}".lstrip("."), self.value[key])

    def named(self, listed_in: str, namer: "_Node", key: str, inner: str) -> "_Node":
        """The inner mapping of the one entry of the list listed_in that has the name that stands at namer's key."""
        value = self.child(listed_in).value
        name, entries = namer.text(key), value if isinstance(value, list) else []
        found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
        if len(found) != 1:
            said_by = f"{namer.place}.{key}".lstrip(".")
            count = f"there are {len(found)} entries" if found else "there is no entry"
            text = f"{self.path}: {listed_in}: {count} named {name!r}, which {said_by} names"
            raise BadCredentials(f"{text} (entries in all: {len(entries)})")
        entry = _Node(self.path, f"{listed_in}[{name}]", found[0])
        if not isinstance(found[0].get(inner), dict):
            entry.wrong(inner, "a mapping")
        return entry.child(inner)

    def text(self, key: str) -> str:
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if not isinstance(value, str) or not value:
            self.wrong(key, "a text")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            self.wrong(key, "true or false")
        return value

    def file(self, key: str) -> bytes:
        """What the named file holds; a relative path starts at the kubeconfig."""
        try:
            return (self.path.parent / self.text(key)).read_bytes()
        except OSError as error:
            self.wrong(key, f"the path of a readable file ({error.strerror})", cause=error)

    def content(self, key: str) -> bytes | None:
        """PEM, in place (`<key>-data`, base64) or in a file (`<key>`); in place wins, as in kubectl."""
        in_place = f"{key}-data"
        if not self.value.get(in_place):
            return self._pem(key, self.file(key)) if self.value.get(key) else None
        try:
            return self._pem(in_place, base64.b64decode(self.text(in_place), validate=True))
        except (binascii.Error, ValueError):
            self.wrong(in_place, "base64")

    def _pem(self, key: str, content: bytes) -> bytes:
        if b"-----BEGIN " not in content:
            self.wrong(key, "PEM")
        return content


def _kind(value: object) -> str:
    """What sort of value stands there, never the value."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        str: "a text",
        dict: "a mapping",
        list: "a list",
        int: "a number",
        float: "a number",
    }
    size = f" of {len(value)}" if isinstance(value, str | dict | list) else ""
    return names.get(type(value), type(value).__name__) + size


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Raises BadCredentials for a certificate or key that cannot be used; its file is gone when this returns."""
    try:
        context = ssl.create_default_context(cadata=endpoint.ca.decode() if endpoint.ca else None)
        if endpoint.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if endpoint.client_certificate and endpoint.client_key:
            with tempfile.NamedTemporaryFile() as file:  # Made with mode 0600. OpenSSL reads these only from files.
                file.write(endpoint.client_certificate + b"\n" + endpoint.client_key)
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise BadCredentials(f"certificates for {endpoint.server}: expected usable PEM ({error})") from error
    return context


class Session:
    """Connections to one API server, with our credentials on every request.

    After a 401, and when nobody can be reached there, the endpoint is read again: it may have been renewed or moved.
    """

    def __init__(
        self, read_endpoint: Callable[[], Endpoint], connect_timeout_seconds: float, limit: int, bounds: AnswerBounds
    ) -> None:
        self._read_endpoint = read_endpoint
        self._connect_timeout_seconds = connect_timeout_seconds
        self._limit = limit
        self._bounds = bounds
        self._endpoint: Endpoint | None = None  # None: to be read before the next request
        self._opened: tuple[Endpoint, aiohttp.ClientSession] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: aiohttp.Payload | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        endpoint, session = await self._open()
        url = URL(endpoint.server + path, encoded=True).with_query(params)
        known = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        try:
            async with session.request(
                method,
                url,
                headers={**headers, **known},
                data=body,
                allow_redirects=False,  # Our token is for this server only.
                server_hostname=endpoint.tls_server_name,
            ) as answer:
                if answer.status == UNAUTHORIZED:
                    self._read_again(endpoint)
                yield answer
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            self._read_again(endpoint)
            raise

    def _read_again(self, endpoint: Endpoint) -> None:
        """Before the next request, unless another request found the same and it has been read since."""
        if self._endpoint is endpoint:
            self._endpoint = None

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[1].close()

    async def _open(self) -> tuple[Endpoint, aiohttp.ClientSession]:
        if self._opened is not None and self._opened[0] is self._endpoint:
            return self._opened
        async with self._opening:
            if self._endpoint is None:
                self._endpoint = await asyncio.to_thread(self._read_endpoint)
            endpoint = self._endpoint
            if self._opened is not None and not _same_tls(self._opened[0], endpoint):
                await self.close()
            session = self._made(endpoint) if self._opened is None else self._opened[1]
            self._opened = (endpoint, session)
            return self._opened

    def _made(self, endpoint: Endpoint) -> aiohttp.ClientSession:
        # Whole requests are bounded by the caller, who knows a watch from a read.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_seconds)
        return open_session(self._limit, timeout, tls=tls_context(endpoint), bounds=self._bounds)


def _same_tls(one: Endpoint, other: Endpoint) -> bool:
    """Whether only the token differs: that one goes with each request."""
    return replace(one, token=None) == replace(other, token=None)
