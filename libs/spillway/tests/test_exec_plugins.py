"""How an exec plugin of a kubeconfig is run: what it is told, what of its answers is taken, and how a bad one ends.

The plugins are shell scripts, run as services run one.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from spillway.clusters.api import CONFIG_MAPS, ClusterApiSettings, ClusterUnreachable, make_cluster_api
from spillway.clusters.credentials import BadCredentials, Endpoint, load_endpoint
from spillway.clusters.settings import PluginBounds

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SECRET = "hunter2-hunter2"
WAIT_SECONDS = 20.0


def write_kubeconfig(folder: Path, entry: Any, **cluster: Any) -> None:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **cluster}}],
        "users": [{"name": "u", "user": {"exec": entry}}],
    }
    (folder / "own-1.kubeconfig").write_text(json.dumps(config))


def write_plugin_script(folder: Path, lines: str, name: str = "plugin") -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{lines}\n")
    file.chmod(0o700)


def exec_entry(**changes: Any) -> dict[str, Any]:
    made = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"} | changes
    return {key: value for key, value in made.items() if value is not None}


def lines_that_answer(version: str = V1, **status: Any) -> str:
    """Lines of a script that answers so."""
    return lines_that_print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))


def lines_that_print(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def endpoint_from_plugin(folder: Path, **bounds: Any) -> Endpoint:
    return load_endpoint(folder, "own-1", allow_exec=True, bounds=PluginBounds(**bounds))


def read_file_once_there(file: Path) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while not file.exists() or not file.read_text().endswith("\n"):
        assert time.monotonic() < deadline, f"{file} was not written"
        time.sleep(0.01)
    return file.read_text()


def is_process_gone(pid: int) -> bool:
    """Whether it runs no more; a zombie, whom its parent has yet to ask, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def wait_until_process_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_process_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


# ── What it is told, and what is taken ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_its_token_is_taken(tmp_path: Path, version: str) -> None:
    write_plugin_script(tmp_path, lines_that_answer(version, token=SECRET))
    write_kubeconfig(tmp_path, exec_entry(apiVersion=version))
    endpoint = endpoint_from_plugin(tmp_path)
    assert (endpoint.token, endpoint.client_certificate, endpoint.ends_at) == (SECRET, None, None)
    assert SECRET not in repr(endpoint)


def test_its_certificate_and_the_end_are_taken(tmp_path: Path) -> None:
    status = {"clientCertificateData": PEM, "clientKeyData": PEM, "expirationTimestamp": "2033-05-18T03:33:20Z"}
    write_plugin_script(tmp_path, lines_that_answer(**status))
    write_kubeconfig(tmp_path, exec_entry())
    endpoint = endpoint_from_plugin(tmp_path)
    assert (endpoint.client_certificate, endpoint.client_key) == (PEM.encode(), PEM.encode())
    assert (endpoint.token, endpoint.ends_at) == (None, 2_000_000_000.0)


ENDS = {
    "of Go, with nanoseconds": "2033-05-18T03:33:20.000000000Z",
    "of another zone": "2033-05-18T05:33:20+02:00",
}


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_an_end_is_a_time_of_any_zone(tmp_path: Path, text: str) -> None:
    write_plugin_script(tmp_path, lines_that_answer(token="t", expirationTimestamp=text))
    write_kubeconfig(tmp_path, exec_entry())
    assert endpoint_from_plugin(tmp_path).ends_at == 2_000_000_000.0


SAYS_WHAT_IT_GOT = 'printf "%s\\n" "$KUBERNETES_EXEC_INFO" "$OWN" "$PATH" "$@" >"$0.told"\ncat\n' + lines_that_answer(
    token="t"
)


def test_it_is_told_what_client_go_tells(tmp_path: Path) -> None:
    """And it has nothing to read, and our environment beside its own."""
    write_plugin_script(tmp_path, SAYS_WHAT_IT_GOT)
    write_kubeconfig(tmp_path, exec_entry(args=["one", "two words"], env=[{"name": "OWN", "value": "mine"}]))
    endpoint_from_plugin(tmp_path)
    info, *others = (tmp_path / "plugin.told").read_text().splitlines()
    assert json.loads(info) == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert others == ["mine", os.environ["PATH"], "one", "two words"]


def test_it_is_told_of_the_cluster_when_it_wants_that(tmp_path: Path) -> None:
    write_plugin_script(tmp_path, SAYS_WHAT_IT_GOT)
    (tmp_path / "ca.pem").write_text(PEM)
    told = {"server": "https://127.0.0.1:7443", "tls-server-name": "api", "proxy-url": "http://p:1"}
    extensions = [
        {"name": "other", "extension": {"no": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": ["a"]}},
    ]
    write_kubeconfig(
        tmp_path,
        exec_entry(provideClusterInfo=True),
        extensions=extensions,
        **told,
        **{"certificate-authority": "ca.pem"},
    )
    endpoint_from_plugin(tmp_path)
    info = json.loads((tmp_path / "plugin.told").read_text().splitlines()[0])
    ca = base64.b64encode(PEM.encode()).decode()
    config = {"audience": ["a"]}
    assert info["spec"]["cluster"] == told | {"certificate-authority-data": ca, "config": config}


def test_a_command_with_a_slash_starts_at_the_kubeconfig_and_a_name_at_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "credentials", tmp_path / "elsewhere"
    for made, token in ((folder / "bin", "beside"), (elsewhere, "of-the-path")):
        made.mkdir(parents=True)
        write_plugin_script(made, lines_that_answer(token=token), name="give-token")
    monkeypatch.setenv("PATH", f"{elsewhere}:{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    write_plugin_script(folder, lines_that_answer(token="beside"), name="give-token")
    for command, token in (("bin/give-token", "beside"), ("./give-token", "beside"), ("give-token", "of-the-path")):
        write_kubeconfig(folder, exec_entry(command=command))
        assert endpoint_from_plugin(folder).token == token
        assert endpoint_from_plugin(Path()).token == token, "the folder has a relative path"


@pytest.mark.parametrize("mode", ["Never", "IfAvailable", None])
def test_a_plugin_that_does_not_insist_on_a_person_runs(tmp_path: Path, mode: str | None) -> None:
    write_plugin_script(tmp_path, lines_that_answer(token="t"))
    write_kubeconfig(tmp_path, exec_entry(interactiveMode=mode))
    assert endpoint_from_plugin(tmp_path).token == "t"


def test_it_may_write_much_to_standard_error(tmp_path: Path) -> None:
    write_plugin_script(tmp_path, "head -c 3000000 /dev/zero >&2\n" + lines_that_answer(token="t"))
    write_kubeconfig(tmp_path, exec_entry())
    assert endpoint_from_plugin(tmp_path).token == "t"


# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────

BAD_ENTRIES: dict[str, tuple[Any, str]] = {
    "a list": ([SECRET], r"exec: expected a mapping, found a list of 1"),
    "an empty one": ({}, r"exec\.apiVersion: expected a text, found nothing"),
    "no version": (exec_entry(apiVersion=None), r"exec\.apiVersion: expected a text, found nothing"),
    "an old version": (
        exec_entry(apiVersion="client.authentication.k8s.io/v1alpha1"),
        f"exec.apiVersion: expected {V1} or",
    ),
    "no command": (exec_entry(command=None), r"exec\.command: expected a text, found nothing"),
    "a zero byte": (exec_entry(command="a\0b"), r"exec\.command: expected texts without a zero byte"),
    "a person is asked": (
        exec_entry(interactiveMode="Always"),
        r"exec\.interactiveMode: expected Never or IfAvailable",
    ),
    "arguments that are no list": (exec_entry(args=SECRET), r"exec\.args: expected a list, found a text of 15"),
    "an argument that is a number": (exec_entry(args=[7]), r"exec\.args: expected texts"),
    "variables that are no list": (exec_entry(env={"A": SECRET}), r"exec\.env: expected a list, found a mapping of 1"),
    "a variable without a name": (exec_entry(env=[{"value": SECRET}]), r"exec\.env: expected a list of name and value"),
    "a name with =": (
        exec_entry(env=[{"name": "A=B", "value": SECRET}]),
        r"exec\.env: expected .* without = in a name",
    ),
    "a value that is a number": (exec_entry(env=[{"name": "A", "value": 7}]), r"exec\.env: expected a list of name"),
    "cluster wanted by a text": (exec_entry(provideClusterInfo="yes"), r"provideClusterInfo: expected true or false"),
    "a hint that is a list": (exec_entry(installHint=[SECRET]), r"installHint: expected a text, found a list"),
    "nothing there": (
        exec_entry(command="./nosuch"),
        r"exec: command: expected a program that is installed, and there is no",
    ),
    "nothing there, with a hint": (
        exec_entry(command="no-such-plugin", installHint="apt install it\n\x1b[31mnow"),
        r"of this name; its installHint: 'apt install it\\n\\x1b\[31mnow'",
    ),
    "no program": (
        exec_entry(command="./own-1.kubeconfig"),
        r"command: expected a program that can be run \(Permission deni",
    ),
}


@pytest.mark.parametrize(("bad", "words"), BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_a_bad_entry_is_named_and_never_printed(tmp_path: Path, bad: Any, words: str) -> None:
    write_plugin_script(tmp_path, lines_that_answer(token=SECRET))
    write_kubeconfig(tmp_path, bad)
    assert_refused(tmp_path, words)


def assert_refused(folder: Path, words: str, **bounds: Any) -> None:
    with pytest.raises(BadCredentials, match=words) as raised:
        endpoint_from_plugin(folder, **bounds)
    text = str(raised.value)
    assert text.startswith(f"{folder / 'own-1.kubeconfig'}: users[u].user.exec")
    assert SECRET not in text
    assert text.isprintable(), "no control character"
    assert raised.value.__cause__ is None or SECRET not in str(raised.value.__cause__)


def test_no_plugin_runs_where_the_settings_do_not_allow_it(tmp_path: Path) -> None:
    write_plugin_script(tmp_path, f'touch "$0.ran"\n{lines_that_answer(token="t")}')
    write_kubeconfig(tmp_path, exec_entry())
    with pytest.raises(BadCredentials, match="exec: expected no exec plugin, since the settings do not allow them"):
        load_endpoint(tmp_path, "own-1")
    assert not (tmp_path / "plugin.ran").exists()


BAD_RUNS: dict[str, tuple[str, str]] = {
    "it fails": ("echo one >&2; echo two >&2; exit 3", "it ended with exit code 3, and said last: 'two'"),
    "it fails and says nothing": ("exit 1", "it ended with exit code 1, and said nothing"),
    "it fails with colours": (r"printf '\033[31mred\007\n\n' >&2; exit 1", r"said last: '\\x1b\[31mred\\x07'"),
    "it fails at length": ("head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1", "said last: 'x{300}…'"),
    "it says its secrets": (
        'echo "bad: $KEY, $1, $2" >&2; exit 1',
        r"said last: 'bad: \(hidden\), --secret=\(hidden\), \(hidden\)'",
    ),
    "it is ended": ("kill -9 $$", "it was ended by signal 9"),
    "no answer": ("true", "exec: expected an answer in JSON, found 0 bytes that are none"),
    "no JSON": (f"echo 'token: {SECRET}'", "exec: expected an answer in JSON, found 23 bytes that are none"),
    "half an answer": (f'echo \'{{"token": "{SECRET}\'', "exec: expected an answer in JSON"),
    "no text": ("printf '\\377\\376'", "exec: expected an answer in JSON"),
    "nested without end": ("head -c 200000 /dev/zero | tr '\\0' [", "exec: expected an answer in JSON"),
    "a list": (f"echo '[\"{SECRET}\"]'", "expected an ExecCredential as the answer, found no mapping"),
    "another kind": (
        lines_that_print('{"kind": "Status"}'),
        "exec: the answer.kind: expected ExecCredential, found a text of 6",
    ),
    "another version": (
        lines_that_answer(V1BETA1, token=SECRET),
        f"the answer.apiVersion: expected {V1}, which was asked for, found a text of 36",
    ),
    "no status": (
        lines_that_print(json.dumps({"apiVersion": V1, "kind": "ExecCredential"})),
        "exec: the answer.status: expected a mapping, found nothing",
    ),
    "a status that is a list": (
        lines_that_print(json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": [SECRET]})),
        "exec: the answer.status.token: expected a mapping around it",
    ),
    "no credential": (
        lines_that_answer(),
        "status.token: expected a token, or a client certificate and its key, found nothing",
    ),
    "a token of two lines": (lines_that_answer(token=f"{SECRET}\nX: y"), "status.token: expected a token of one line"),
    "a token that is a number": (lines_that_answer(token=12345), "status.token: expected a text, found a number"),
    "a certificate alone": (
        lines_that_answer(clientCertificateData=PEM),
        "clientKeyData: expected a certificate and its key toget",
    ),
    "a key alone": (
        lines_that_answer(token="t", clientKeyData=PEM),
        "clientCertificateData: expected a certificate and its key",
    ),
    "a certificate that is none": (
        lines_that_answer(clientCertificateData=SECRET, clientKeyData=PEM),
        "clientCertificateData: expected PEM, found a text of 15",
    ),
    "an end that is none": (
        lines_that_answer(token="t", expirationTimestamp="soon"),
        "expirationTimestamp: expected a time as RFC",
    ),
    "an end without a zone": (
        lines_that_answer(token="t", expirationTimestamp="2033-05-18T03:33:20"),
        "expirationTimestamp: expected a time as RFC 3339 writes it, with its zone, found a text of 19",
    ),
    "too much": ("yes", "it wrote more than 262144 bytes"),
}


@pytest.mark.parametrize(("lines", "words"), BAD_RUNS.values(), ids=BAD_RUNS)
def test_a_bad_run_is_named_and_no_secret_printed(tmp_path: Path, lines: str, words: str) -> None:
    write_plugin_script(tmp_path, lines)
    given = [f"--secret={SECRET}", "get-token-of-cluster"]
    write_kubeconfig(tmp_path, exec_entry(args=given, env=[{"name": "KEY", "value": SECRET}]))
    assert_refused(tmp_path, words)


HANGS = {
    "it hangs": 'sleep 1000 & echo $! >"$0.child"; echo $$ >"$0.pid"; wait',
    "it hangs with its outputs closed": 'sleep 1000 & echo $! >"$0.child"; echo $$ >"$0.pid"; exec >&- 2>&-; wait',
    "it ends, and what it started has its output": 'sleep 1000 & echo $! >"$0.child"; echo $$ >"$0.pid"',
    "it does not end when it is asked to": "trap '' TERM INT\n"
    'sleep 1000 & echo $! >"$0.child"; echo $$ >"$0.pid"; while true; do sleep 1; done',
}


@pytest.mark.parametrize("lines", HANGS.values(), ids=HANGS)
def test_a_plugin_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path, lines: str) -> None:
    write_plugin_script(tmp_path, lines)
    write_kubeconfig(tmp_path, exec_entry())
    assert_refused(tmp_path, r"it took longer than 1 s", seconds=1.0)
    for file in ("plugin.pid", "plugin.child"):
        wait_until_process_gone(int(read_file_once_there(tmp_path / file)))


def test_what_writes_without_end_is_ended(tmp_path: Path) -> None:
    write_plugin_script(tmp_path, 'echo $$ >"$0.pid"; exec yes')
    write_kubeconfig(tmp_path, exec_entry())
    assert_refused(tmp_path, "it wrote more than 1000 bytes", output_bytes=1000)
    wait_until_process_gone(int(read_file_once_there(tmp_path / "plugin.pid")))


def test_a_process_that_ends_takes_a_hanging_plugin_with_it(tmp_path: Path) -> None:
    write_plugin_script(tmp_path, 'echo $$ >"$0.pid"; sleep 1000')
    write_kubeconfig(tmp_path, exec_entry())
    lines = (
        "import sys, threading, time",
        "from functools import partial",
        "from pathlib import Path",
        "from spillway.clusters.credentials import load_endpoint",
        "folder = Path(sys.argv[1])",
        "threading.Thread(target=partial(load_endpoint, folder, 'own-1', allow_exec=True), daemon=True).start()",
        "while not (folder / 'plugin.pid').exists(): time.sleep(0.01)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines), str(tmp_path)], check=True, timeout=60)
    wait_until_process_gone(int(read_file_once_there(tmp_path / "plugin.pid")))


@asynccontextmanager
async def serve_cluster_for_token(token: str) -> AsyncIterator[str]:
    """The URL of an API that lets in who has the token."""

    async def answer_request(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == f"Bearer {token}"
        return web.json_response({"metadata": {"name": "c"}} if known else {"code": 401}, status=200 if known else 401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer_request)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_plugin_is_asked_again_after_a_401(tmp_path: Path) -> None:
    """And not for each request."""
    write_plugin_script(
        tmp_path,
        f'echo run >>"$0.runs"\n[ -f "$0.new" ] && {{\n{lines_that_answer(token="new")}\nexit\n}}\n'
        f"{lines_that_answer(token='old')}",
    )
    async with serve_cluster_for_token("new") as url:
        write_kubeconfig(tmp_path, exec_entry(), server=url)
        api = make_cluster_api(lambda: endpoint_from_plugin(tmp_path), "blue", ClusterApiSettings())
        try:
            with pytest.raises(ClusterUnreachable, match="unauthorized"):
                await api.get(CONFIG_MAPS, "n", "c")
            (tmp_path / "plugin.new").touch()
            for _ in range(3):
                assert await api.get(CONFIG_MAPS, "n", "c") == {"metadata": {"name": "c"}}
        finally:
            await api.close()
    assert (tmp_path / "plugin.runs").read_text().splitlines() == ["run", "run"]
