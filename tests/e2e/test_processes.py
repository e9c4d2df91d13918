"""What every service's process does: health, an end that is clean, a start that is refused."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spillway_local.programs import interruptible_command
from spillway_local.supervision import Supervision

from .running import KINDS, SERVICES, Platform


async def test_health_pages_answer(platform: Platform) -> None:
    """Of each instance: /healthz and /readyz say yes, /metrics shows the service's own figures."""
    for name in SERVICES:
        assert await platform.get_health_page(name, "/healthz") == (200, "ok\n"), name
        assert (await platform.get_health_page(name, "/readyz"))[0] == 200, name
        status, text = await platform.get_health_page(name, "/metrics")
        assert status == 200, name
        assert "\nspillway_bus_connected 1.0" in text, name


@pytest.mark.parametrize("number", [1, 2])
async def test_sigterm_ends_a_service_cleanly(platform: Platform, number: int) -> None:
    """One instance of each kind while the other lives: exit code 0 in the time granted, and the last line says so."""
    names = [name for name in SERVICES if name.endswith(f"-{number}")]
    assert len(names) == len(KINDS)
    await asyncio.gather(*map(platform.stop_program, names))
    try:
        for name in names:
            _assert_ended_cleanly(platform, name)
    finally:
        await asyncio.gather(*map(platform.start_program, names))


async def test_who_is_to_stop_while_the_log_is_silent_ends_cleanly_too(platform: Platform) -> None:
    """Nothing waits for an answer of the broker for longer than supervisor waits for the whole."""
    (kafka,) = platform.stack.pids("kafka")
    os.kill(kafka, signal.SIGSTOP)
    try:
        await asyncio.gather(*map(platform.stop_program, SERVICES))
    finally:
        os.kill(kafka, signal.SIGCONT)
    try:
        for name in SERVICES:
            _assert_ended_cleanly(platform, name)
    finally:
        await asyncio.gather(*map(platform.start_program, SERVICES))


def _assert_ended_cleanly(platform: Platform, name: str) -> None:
    ended = re.findall(rf"stopped: {name} \((.*)\)", (platform.stack.folder / "supervisord.log").read_text())
    lines = platform.stack.supervision.log_file_of(name).read_text().splitlines()
    assert ended[-1] == "exit status 0", lines[-5:]
    # Behind it aiokafka may tell of connections to a silent broker that it left open.
    (last,) = [line for line in lines if '"event": "stopped"' in line][-1:]
    assert '"clean": true' in last


def test_an_open_bind_without_tls_is_refused(platform: Platform) -> None:
    """A planner that would listen for everybody without TLS and callers ends with exit code 2 and says why."""
    environment = os.environ | {
        "SPILLWAY_KAFKA_BOOTSTRAP": platform.stack.addresses().kafka,
        "SPILLWAY_REDIS_URL": platform.stack.addresses().redis,
        "SPILLWAY_RPC_HOST": "0.0.0.0",
        "SPILLWAY_RPC_PORT": "0",
    }
    ended = subprocess.run(
        (sys.executable, "-m", "planner"), env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2, ended.stdout
    assert "host '0.0.0.0' is not loopback: expected a loopback address, or TLS" in ended.stdout


@pytest.mark.parametrize("arguments", [("up", "--instances", "1"), ("demo",)], ids=" ".join)
def test_ctrl_c_while_it_starts_ends_what_was_started_and_says_so(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    command = interruptible_command(
        (str(Path(sys.executable).parent / "spillway"), *arguments, "--folder", str(folder))
    )
    try:
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as starting:
            assert starting.stdout is not None
            said = next((line for line in starting.stdout if "topics are there" in line), "")
            starting.send_signal(signal.SIGINT)
            rest = starting.stdout.read()
        assert (said != "", starting.returncode) == (True, 130), rest
        assert "interrupted: the started processes are being stopped" in rest
        assert not Supervision(folder).is_running()
    finally:
        Supervision(folder).stop()
