"""Which kubeconfigs are read, and what is said of those that are not: file, field, kind of value, expectation."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.clusters.credentials import BadCredentials, Endpoint, Proxy, load_endpoint, tls_context
from spillway.clusters.kubeconfig import MAX_FILE_BYTES

PEM = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SECRET = "hunter2-hunter2"


def test_certificates_that_cannot_be_used_are_bad_credentials() -> None:
    with pytest.raises(BadCredentials, match="expected usable PEM"):
        tls_context(Endpoint("https://a", ca=PEM))


def kubeconfig(**changes: Any) -> dict[str, Any]:
    """A good one, with parts replaced: cluster=, user=, and top-level keys; None takes a key away."""
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": base64.b64encode(PEM).decode()}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster | changes.pop("cluster", {})}],
        "users": [{"name": "u", "user": changes.pop("user", {"token": SECRET})}],
    }
    return {key: value for key, value in (config | changes).items() if value is not None}


def write_kubeconfig(folder: Path, content: dict[str, Any] | str) -> Path:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    (folder / "own-1.kubeconfig").write_text(text)
    return folder


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_an_endpoint_is_read_from_yaml_and_json(tmp_path: Path, dump: Any) -> None:
    endpoint = load_endpoint(write_kubeconfig(tmp_path, dump(kubeconfig())), "own-1")
    assert (endpoint.server, endpoint.ca, endpoint.token) == ("https://127.0.0.1:6443", PEM, SECRET)
    assert SECRET not in repr(endpoint)


def test_relative_paths_start_at_the_kubeconfig(tmp_path: Path) -> None:
    for name, content in {"ca.pem": PEM, "user.pem": PEM, "user.key": PEM, "token": b"renewed\n"}.items():
        (tmp_path / name).write_bytes(content)
    cluster = {"certificate-authority-data": None, "certificate-authority": "ca.pem"}
    user = {"client-certificate": "user.pem", "client-key": "user.key", "tokenFile": "token"}
    endpoint = load_endpoint(write_kubeconfig(tmp_path, kubeconfig(cluster=cluster, user=user)), "own-1")
    assert (endpoint.ca, endpoint.client_certificate, endpoint.client_key) == (PEM, PEM, PEM)
    assert endpoint.token == "renewed"


def test_an_account_of_a_pod_is_read_by_its_paths(tmp_path: Path) -> None:
    """As Kubernetes mounts it: what a service in a cluster has for that cluster is a kubeconfig that names these."""
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text("of-the-pod")
    (mounted / "ca.crt").write_bytes(PEM)
    cluster = {"certificate-authority-data": None, "certificate-authority": str(mounted / "ca.crt")}
    user = {"tokenFile": str(mounted / "token")}
    endpoint = load_endpoint(write_kubeconfig(tmp_path, kubeconfig(cluster=cluster, user=user)), "own-1")
    assert (endpoint.ca, endpoint.token) == (PEM, "of-the-pod")
    assert [path for path, _ in endpoint.files] == [mounted / "token"]


def test_a_context_needs_no_user(tmp_path: Path) -> None:
    contexts = [{"name": "x", "context": {"cluster": "c"}}]
    endpoint = load_endpoint(write_kubeconfig(tmp_path, kubeconfig(contexts=contexts, users=None)), "own-1")
    assert endpoint.token is None


BAD_CREDENTIALS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "not YAML": ("{token: " + SECRET, "expected a kubeconfig in YAML or JSON"),
    "a tab in YAML": ("a:\n\t" + SECRET, "expected a kubeconfig in YAML or JSON"),
    "empty": ("", "the file: expected a mapping or list, not nothing"),
    "a text": (SECRET, "the file: expected a mapping or list, not a text"),
    "no current context": (kubeconfig(**{"current-context": None}), "current-context: expected a text, found nothing"),
    "current context absent": (
        kubeconfig(**{"current-context": "y"}),
        "no entry named 'y', which current-context names",
    ),
    "no contexts": (kubeconfig(contexts=None), "contexts: expected a list, found nothing"),
    "no clusters": (kubeconfig(clusters=None), "clusters: expected a list, found nothing"),
    "cluster missing": (kubeconfig(clusters=[]), r"clusters: .* 'c', which contexts\[x\].context.cluster names"),
    "user missing": (kubeconfig(users=[]), "users: there is no entry named 'u'"),
    "user given twice": (kubeconfig(users=[{"name": "u", "user": {}}] * 2), "users: there are 2 entries named 'u'"),
    "no server": (
        kubeconfig(cluster={"server": None}),
        r"clusters\[c\].cluster.server: expected a text, found nothing",
    ),
    "server is no URL": (kubeconfig(cluster={"server": "10.0.0.1"}), "server: expected a URL with http or https"),
    "server with a password": (kubeconfig(cluster={"server": f"https://a:{SECRET}@b"}), "neither user nor query"),
    "CA is not base64": (kubeconfig(cluster={"certificate-authority-data": "%%%"}), "authority-data: expected base64"),
    "CA is not PEM": (kubeconfig(cluster={"certificate-authority-data": "aGVsbG8="}), "authority-data: expected PEM"),
    "CA is a number": (kubeconfig(cluster={"certificate-authority-data": 7}), "expected a text, found a number"),
    "CA file missing": (
        kubeconfig(cluster={"certificate-authority-data": None, "certificate-authority": "nope.pem"}),
        "certificate-authority: expected the path of a readable file",
    ),
    "insecure is a text": (
        kubeconfig(cluster={"insecure-skip-tls-verify": "yes"}),
        "insecure-skip-tls-verify: expected true or false, found a text",
    ),
    "a SOCKS proxy": (
        kubeconfig(cluster={"proxy-url": f"socks5://a:{SECRET}@x:1080"}),
        r"clusters\[c\].cluster.proxy-url: expected .* http or https: SOCKS is not supported, found a text of 33",
    ),
    "a proxy without a scheme": (kubeconfig(cluster={"proxy-url": "x:80"}), "proxy-url: expected the URL of a proxy"),
    "a proxy with a path": (kubeconfig(cluster={"proxy-url": "http://x/y"}), "proxy-url: expected the URL of a proxy"),
    "a proxy without a host": (kubeconfig(cluster={"proxy-url": "http://"}), "proxy-url: expected the URL of a proxy"),
    "a proxy of port 99999": (
        kubeconfig(cluster={"proxy-url": f"http://a:{SECRET}@x:99999"}),
        "proxy-url: expected the URL of a proxy",
    ),
    "a proxy that is a list": (kubeconfig(cluster={"proxy-url": [SECRET]}), "proxy-url: expected a text, found a list"),
    "a proxy's user with a colon": (
        kubeconfig(cluster={"proxy-url": f"http://a%3Ab:{SECRET}@x"}),
        "proxy-url: expected a user without a colon",
    ),
    "token is a number": (
        kubeconfig(user={"token": 12345678}),
        r"users\[u\].user.token: expected a text, found a number",
    ),
    "token with a newline": (kubeconfig(user={"token": SECRET + "\nX: y"}), "token: expected a token of one line"),
    "certificate without a key": (
        kubeconfig(user={"client-certificate-data": base64.b64encode(PEM).decode()}),
        "client-key: expected a client certificate and its key together",
    ),
    "a password": (kubeconfig(user={"username": "a", "password": SECRET}), "username: expected a token"),
    "a password alone": (kubeconfig(user={"password": SECRET}), "password: expected a token"),
    "an auth provider": (
        kubeconfig(user={"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}),
        r"users\[u\].user.auth-provider: expected an exec plugin in its place",
    ),
    "impersonation": (kubeconfig(user={"token": SECRET, "as": "admin"}), r"users\[u\].user.as: expected no impersonat"),
    "impersonation of groups": (
        kubeconfig(user={"token": SECRET, "as-groups": ["system:masters"]}),
        "as-groups: expected no impersonation: an account of our own, found a list of 1",
    ),
    "token file missing": (
        kubeconfig(user={"tokenFile": "nope"}),
        r"tokenFile: expected the path of a readable file \(No such file or directory\), found a text",
    ),
    "token file's path with a zero byte": (
        kubeconfig(user={"tokenFile": "a\0b"}),
        "tokenFile: expected the path of a readable file",
    ),
    "an exec plugin": (kubeconfig(user={"exec": {"command": "x"}}), "exec: expected no exec plugin"),
}


READ_PROXIES = {
    "none": (None, None),
    "an empty one": ("", None),
    "http": ("http://proxy:3128", Proxy("http://proxy:3128")),
    "http, with a slash": ("http://proxy:3128/", Proxy("http://proxy:3128/")),
    "https": ("https://proxy", Proxy("https://proxy")),
    "user and password": ("http://a:b%2Fc@proxy", Proxy("http://proxy", "Basic YTpiL2M=")),
    "a user alone": ("http://a@proxy", Proxy("http://proxy", "Basic YTo=")),
}


@pytest.mark.parametrize(("text", "proxy"), READ_PROXIES.values(), ids=READ_PROXIES)
def test_a_proxy_is_read_apart_from_its_password(tmp_path: Path, text: str | None, proxy: Proxy | None) -> None:
    endpoint = load_endpoint(write_kubeconfig(tmp_path, kubeconfig(cluster={"proxy-url": text})), "own-1")
    assert endpoint.proxy == proxy
    assert "Basic" not in repr(endpoint)


def test_fields_that_are_empty_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    """As Kubernetes' own reader takes them."""
    user = {"token": SECRET, "exec": None, "auth-provider": {}, "as": "", "as-groups": [], "username": ""}
    assert load_endpoint(write_kubeconfig(tmp_path, kubeconfig(user=user)), "own-1").token == SECRET


@pytest.mark.parametrize(
    ("file", "words"),
    [("own-1.kubeconfig", "kubeconfig: expected at most 4194304 bytes"), ("token", "tokenFile: .* of at most 4194304")],
    ids=["kubeconfig", "token"],
)
def test_a_file_that_is_too_long_is_not_read(tmp_path: Path, file: str, words: str) -> None:
    write_kubeconfig(tmp_path, kubeconfig(user={"tokenFile": "token"}))
    with (tmp_path / file).open("a") as opened:
        opened.write("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadCredentials, match=words):
        load_endpoint(tmp_path, "own-1")


@pytest.mark.parametrize(("content", "words"), BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
def test_bad_credentials_are_named_and_never_printed(tmp_path: Path, content: dict[str, Any] | str, words: str) -> None:
    with pytest.raises(BadCredentials, match=words) as raised:
        load_endpoint(write_kubeconfig(tmp_path, content), "own-1")
    assert str(tmp_path / "own-1.kubeconfig") in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None or SECRET not in str(raised.value.__cause__)


@pytest.mark.parametrize("name", ["../own-1", "Own", "a.b", "", "a/b", "a\n"])
def test_a_credential_is_a_name_and_not_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadCredentials, match="expected lower-case letters"):
        load_endpoint(tmp_path, name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadCredentials, match=r"own-2\.kubeconfig: there is no such file"):
        load_endpoint(tmp_path, "own-2")
