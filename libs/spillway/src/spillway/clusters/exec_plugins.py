"""Runs the exec plugin that a kubeconfig names: a program that answers with a token or a client certificate.

Its protocol is Kubernetes' ExecCredential, client.authentication.k8s.io v1 and v1beta1
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
"""

import atexit
import base64
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from spillway.clusters.kubeconfig import ConfigField
from spillway.clusters.settings import PluginBounds

GROUP: Final = "client.authentication.k8s.io"
API_VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
CLUSTER_CONFIG: Final = f"{GROUP}/exec"
"""The name of the extension of a cluster entry that holds configuration for the plugin."""
INFO: Final = "KUBERNETES_EXEC_INFO"
CLUSTER_FIELDS: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression",
)  # fmt: skip
"""The fields of a cluster entry that are passed to the plugin, unchanged from the kubeconfig."""
SHORTEST_SECRET: Final = 4
"""The fewest characters of a plugin's variable or argument that is hidden in the plugin's messages."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The credentials that a plugin returned. Certificate and key are PEM.

    ends_at: Unix seconds; None if the plugin gave no end.
    """

    token: str | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class Plugin:
    """An exec plugin as a kubeconfig configures it.

    user: the kubeconfig entry that names it. variables: added to our own environment for its run.
    """

    user: ConfigField
    api_version: str
    command: str
    arguments: tuple[str, ...] = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    install_hint: str
    wants_cluster: bool


def ask_plugin(user: ConfigField, cluster: ConfigField, ca: bytes | None, bounds: PluginBounds) -> Answer:
    """Runs the plugin that user.exec names, for at most bounds.seconds. ca: the CA certificates of the cluster, PEM.

    Raises BadCredentials. Its text names the fault: a field of the kubeconfig, the run, or the plugin's answer.
    """
    plugin = _read_plugin(user)
    spec: dict[str, Any] = {"interactive": False}
    if plugin.wants_cluster:
        spec["cluster"] = _cluster_info(cluster, ca)
    try:
        info = json.dumps({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})
    except (TypeError, ValueError, RecursionError):
        cluster.raise_wrong_value("extensions", "values that JSON has, since the plugin is told of them")
    return _read_answer(plugin, _run_plugin(plugin, info, bounds))


def _read_plugin(user: ConfigField) -> Plugin:
    entry = user.child_field("exec")
    if not isinstance(entry.value, dict):
        user.raise_wrong_value("exec", "a mapping")
    api_version = entry.read_text("apiVersion")
    if api_version not in API_VERSIONS:
        entry.raise_wrong_value("apiVersion", " or ".join(API_VERSIONS))
    # kubectl requires this field in v1. Without it the plugin gets no input here, since no person is present.
    if entry.has_value("interactiveMode") and entry.read_text("interactiveMode") not in ("Never", "IfAvailable"):
        entry.raise_wrong_value("interactiveMode", "Never or IfAvailable, since a service has nobody to ask")
    command = entry.read_text("command")
    if "/" in command:
        command = str((entry.path.parent / command).absolute())
    arguments = entry.read_list("args")
    if "\0" in command or not all(isinstance(one, str) and "\0" not in one for one in arguments):
        entry.raise_wrong_value("command" if "\0" in command else "args", "texts without a zero byte")
    hint = entry.read_text("installHint") if entry.has_value("installHint") else ""
    return Plugin(
        user,
        api_version,
        command,
        tuple(arguments),
        _read_variables(entry),
        hint,
        entry.read_flag("provideClusterInfo"),
    )


def _read_variables(entry: ConfigField) -> dict[str, str]:
    found = {}
    for one in entry.read_list("env"):
        name, value = (one.get("name"), one.get("value", "")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            entry.raise_wrong_value("env", "a list of name and value, which are texts, without = in a name")
        found[name] = value
    return found


def _cluster_info(cluster: ConfigField, ca: bytes | None) -> dict[str, Any]:
    told = {key: cluster.value[key] for key in CLUSTER_FIELDS if cluster.has_value(key)}
    if ca:
        told["certificate-authority-data"] = base64.b64encode(ca).decode()
    for one in cluster.read_list("extensions"):
        if isinstance(one, dict) and one.get("name") == CLUSTER_CONFIG:
            told["config"] = one.get("extension")
    return told


# ── One run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Run:
    """One run of a plugin. started: set once there is a process, or once none can be started."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None


_RUNS: Final[set[_Run]] = set()
START_SECONDS_MAX: Final = 1.0
"""The most seconds that an ending process waits for the start of a plugin, in order to kill the plugin."""


class _Stopped(Exception):
    """Raised if we end the run of a plugin early. Its text is the reason."""


def _run_plugin(plugin: Plugin, info: str, bounds: PluginBounds) -> bytes:
    """Runs the plugin and returns its standard output. Raises BadCredentials."""
    run = _Run()
    _RUNS.add(run)
    try:
        run.process = process = _start_process(plugin, info)
        run.started.set()
        output, said = _read_outputs(process, bounds)
    except _Stopped as error:
        plugin.user.raise_bad_credentials("exec", f"expected a plugin that answers with credentials: {error}")
    finally:
        run.started.set()
        if run.process is not None:
            _kill_process_group(run.process)
            _close_pipes(run.process)
        _RUNS.discard(run)
    if process.returncode:
        code = process.returncode
        how = f"it ended with exit code {code}" if code > 0 else f"it was ended by signal {-code}"
        plugin.user.raise_bad_credentials(
            "exec", f"expected a plugin that answers with credentials: {how}{_last_line(plugin, said)}"
        )
    return output


def _start_process(plugin: Plugin, info: str) -> "subprocess.Popen[bytes]":
    """Starts the plugin in a process group of its own, so that its child processes end with it."""
    try:
        return subprocess.Popen(
            (plugin.command, *plugin.arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **plugin.variables, INFO: info},
            start_new_session=True,
        )
    except FileNotFoundError:
        hint = f"; its installHint: {escaped_text(plugin.install_hint)}" if plugin.install_hint else ""
        plugin.user.raise_bad_credentials(
            "exec", f"command: expected a program that is installed, and there is none of this name{hint}"
        )
    except (OSError, ValueError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) else ""
        plugin.user.raise_bad_credentials("exec", f"command: expected a program that can be run{why}")


def _read_outputs(process: "subprocess.Popen[bytes]", bounds: PluginBounds) -> tuple[bytes, bytes]:
    """Returns all of standard output and the end of standard error, once the process has ended. Raises _Stopped."""
    deadline = time.monotonic() + bounds.seconds
    output, said = bytearray(), bytearray()
    with selectors.DefaultSelector() as pipes:
        for pipe, kept in ((process.stdout, output), (process.stderr, said)):
            assert pipe is not None
            pipes.register(pipe, selectors.EVENT_READ, kept)
        while pipes.get_map():
            for key, _ in pipes.select(_seconds_left(deadline, bounds)):
                if not (chunk := os.read(key.fd, 2**16)):
                    pipes.unregister(key.fileobj)
                key.data.extend(chunk)
            if len(output) > bounds.output_bytes:
                raise _Stopped(f"it wrote more than {bounds.output_bytes} bytes")
            del said[: -bounds.error_bytes]
    try:
        process.wait(_seconds_left(deadline, bounds))
    except subprocess.TimeoutExpired:
        raise _Stopped(f"it took longer than {bounds.seconds:g} s") from None
    return bytes(output), bytes(said)


def _seconds_left(deadline: float, bounds: PluginBounds) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _Stopped(f"it took longer than {bounds.seconds:g} s")
    return left


def _kill_process_group(process: "subprocess.Popen[bytes]") -> None:
    """Kills the process group unless its end was read already.

    Until then the system cannot give its process id to another process, so no other process is killed.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@atexit.register
def end_all_plugins() -> None:
    """Ends all plugins when this process ends. Nobody else would end a plugin that hangs."""
    for run in tuple(_RUNS):
        run.started.wait(START_SECONDS_MAX)
        if run.process is not None:
            _kill_process_group(run.process)


# ── The answer of a plugin ──────────────────────────────────────────────────────────────────────────────────────────


def escaped_text(text: str, most: int = 300) -> str:
    """Returns a text in quotes, on one line, without control characters, cut to `most` characters."""
    return repr(text if len(text) <= most else f"{text[:most]}…")


def _last_line(plugin: Plugin, said: bytes) -> str:
    """Returns the last line of standard error for an error text. Values that the kubeconfig gives to the plugin are
    hidden in it, because they may be secret."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ", and said nothing"
    line = lines[-1].strip()
    values = (one.partition("=")[2] if one.startswith("-") else one for one in plugin.arguments)
    for secret in sorted((*plugin.variables.values(), *values), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            line = line.replace(secret, "(hidden)")
    return f", and said last: {escaped_text(line)}"


def _read_answer(plugin: Plugin, output: bytes) -> Answer:
    try:
        parsed = json.loads(output)
    except (ValueError, RecursionError):
        # Raise it without a cause, because the cause quotes the answer.
        plugin.user.raise_bad_credentials(
            "exec", f"expected an answer in JSON, found {len(output)} bytes that are none"
        )
    if not isinstance(parsed, dict):
        plugin.user.raise_bad_credentials("exec", "expected an ExecCredential as the answer, found no mapping")
    answer = ConfigField(plugin.user.path, f"{plugin.user.place_of('exec')}: the answer", parsed)
    if parsed.get("kind") != "ExecCredential":
        answer.raise_wrong_value("kind", "ExecCredential")
    if parsed.get("apiVersion") != plugin.api_version:
        answer.raise_wrong_value("apiVersion", f"{plugin.api_version}, which was asked for")
    return _read_credential_status(answer.child_field("status"))


def _read_credential_status(status: ConfigField) -> Answer:
    if not isinstance(status.value, dict):
        status.raise_wrong_value("token", "a mapping around it")
    certificate, key = (
        status.check_pem(name, status.read_text(name).encode()) if status.has_value(name) else None
        for name in ("clientCertificateData", "clientKeyData")
    )
    if (certificate is None) != (key is None):
        status.raise_wrong_value(
            "clientKeyData" if key is None else "clientCertificateData", "a certificate and its key together"
        )
    token = status.read_token("token") if status.has_value("token") else None
    if token is None and certificate is None:
        status.raise_wrong_value("token", "a token, or a client certificate and its key")
    return Answer(token, certificate, key, _read_end_time(status) if status.has_value("expirationTimestamp") else None)


def _read_end_time(status: ConfigField) -> float:
    try:
        ends = datetime.fromisoformat(status.read_text("expirationTimestamp"))
    except ValueError:
        ends = None
    if ends is None or ends.tzinfo is None:
        status.raise_wrong_value("expirationTimestamp", "a time as RFC 3339 writes it, with its zone")
    return ends.timestamp()
