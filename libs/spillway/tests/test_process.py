"""A process: exit codes, signals, readiness, and logs, each in a real child process."""

import asyncio
import json
import re
import signal
import socket
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from spillway.running.process import Process, ProcessSettings, print_help_if_asked, read_process_settings
from spillway.settings import SettingsError

PRELUDE = """
import asyncio, sys
from spillway.bus import NoLog
from spillway.running.process import run, Process
from spillway.settings import SettingsError
async def main(process):
"""


@asynccontextmanager
async def start_child_process(body: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    source = PRELUDE + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\nsys.exit(run('sample', main))\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        source,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **environ},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def wait_for_end(process: asyncio.subprocess.Process) -> tuple[int, list[dict[str, object]], str]:
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.mark.parametrize(
    ("body", "environ", "code", "words"),
    [
        pytest.param("return", {}, 0, "stopped", id="clean"),
        pytest.param("raise NoLog('run the topics command')", {}, 2, "run the topics command", id="operator"),
        pytest.param(
            "async with asyncio.TaskGroup() as group:\n    async def f(): raise SettingsError('X_Y: wrong')\n"
            "    group.create_task(f())",
            {},
            2,
            "X_Y: wrong",
            id="operator in a group",
        ),
        pytest.param("assert 1 == 2, 'our bug'", {}, 1, "our bug", id="bug"),
        pytest.param("return", {"SPILLWAY_LOG_LEVEL": "loud"}, 2, "SPILLWAY_LOG_LEVEL: 'loud'", id="setting"),
        pytest.param("return", {"SPILLWAY_STOP_SECOND": "1"}, 2, "did you mean SPILLWAY_STOP_SECONDS", id="slip"),
        pytest.param("return", {"SPILLWAY_KAFKA_BOOTSTRAP": "b"}, 0, "stopped", id="another's variable"),
    ],
)
async def test_exit_code_and_last_line(body: str, environ: dict[str, str], code: int, words: str) -> None:
    async with start_child_process(body, **environ) as process:
        actual, lines, err = await wait_for_end(process)
    assert (actual, err) == (code, "")
    assert words in json.dumps(lines[-1])
    assert ("Traceback" in json.dumps(lines)) == (code == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_main_return(number: signal.Signals) -> None:
    async with start_child_process("process.note_opened()\nawait process.stopping.wait()") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(number)
        code, lines, _ = await wait_for_end(process)
    assert code == 0
    assert lines[-1]["event"] == "stopped"


async def test_a_main_that_does_not_return_is_cancelled_after_stop_seconds() -> None:
    body = "process.note_opened()\ntry:\n    await asyncio.sleep(99)\nfinally:\n    process.log.info('let go')"
    async with start_child_process(body, SPILLWAY_STOP_SECONDS="0.1") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        code, lines, _ = await wait_for_end(process)
    assert code == 1
    assert [line["event"] for line in lines][-3:] == ["still busy: cancelled", "let go", "stopped"]
    assert any(re.match(r"main:\d+ > sleep:\d+", place) for place in lines[-3]["waiting"])


async def test_a_main_that_has_opened_nothing_yet_ends_at_once() -> None:
    async with start_child_process("await asyncio.sleep(99)") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        code, lines, _ = await wait_for_end(process)
    assert code == 0
    assert [(line["event"], line.get("clean")) for line in lines][-1] == ("stopped", True)


async def test_what_neither_ends_nor_lets_itself_be_cancelled_keeps_no_process() -> None:
    """As aiokafka's close of a client that was just being opened did: the process hung until it was killed."""
    body = """
        async def closing():
            while True:
                try:
                    await asyncio.sleep(99)
                except asyncio.CancelledError:
                    pass
        process.kept = asyncio.create_task(closing())
        await asyncio.sleep(0)
    """
    async with start_child_process(body) as process:
        code, lines, _ = await wait_for_end(process)
    assert code == 0
    assert [line["event"] for line in lines][-2:] == ["stopped", "what does not end is left behind"]
    assert any("closing" in place for place in lines[-1]["waiting"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_health_says_what_is_not_ready() -> None:
    port = free_port()
    body = """
        process.set_ready("log", False, "reading")
        process.set_ready("grpc", True)
        process.note_opened()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        process.set_ready("log", True)
        await process.stopping.wait()
    """
    async with start_child_process(body, SPILLWAY_HEALTH_PORT=str(port)) as process, aiohttp.ClientSession() as session:
        assert process.stdout is not None
        await process.stdout.readline()

        async def get_page(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        for _ in range(100):  # stdin is closed, so the part is ready soon
            status, text = await get_page("/readyz")
            if status == 200:
                break
            assert json.loads(text) == {"ready": False, "reasons": {"log": "reading"}}
            await asyncio.sleep(0.02)
        assert (await get_page("/readyz"))[0] == 200
        assert (await get_page("/healthz")) == (200, "ok\n")
        status, text = await get_page("/metrics")
        assert 'spillway_ready{part="log"} 1.0' in text
        process.send_signal(signal.SIGTERM)
        assert (await wait_for_end(process))[0] == 0


async def test_a_taken_health_port_is_the_operators_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with start_child_process("return", SPILLWAY_HEALTH_PORT=str(taken.getsockname()[1])) as process:
            code, lines, _ = await wait_for_end(process)
    assert code == 2
    assert "cannot listen" in str(lines[-1]["error"])


async def test_library_logs_are_json_too() -> None:
    async with start_child_process(
        "import logging; logging.getLogger('aiokafka').warning('odd %s', 'thing')"
    ) as process:
        _, lines, _ = await wait_for_end(process)
    assert any(line["event"] == "odd thing" and line["logger"] == "aiokafka" for line in lines)


async def test_readiness_follows_its_parts_and_the_stop() -> None:
    process = Process("sample", ProcessSettings(instance="i"))
    assert process.unready_reasons_by_part() == {}
    process.set_ready("a", False)
    assert process.unready_reasons_by_part() == {"a": "not ready"}
    process.set_ready("a", True)
    process.stopping.set()
    assert process.unready_reasons_by_part() == {"process": "stopping"}


def test_help_prints_the_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_help_if_asked("Does things.", argv=["--help"])
    assert "SPILLWAY_STOP_SECONDS" in capsys.readouterr().out
    assert not print_help_if_asked("Does things.", argv=[])


def test_bounds_of_process_settings() -> None:
    assert read_process_settings({"SPILLWAY_TRACE_RATIO": "0.5"}).trace_ratio == 0.5
    with pytest.raises(SettingsError, match="SPILLWAY_TRACE_RATIO"):
        read_process_settings({"SPILLWAY_TRACE_RATIO": "2"})


async def test_the_time_of_a_process_goes_on_while_its_host_is_suspended() -> None:
    body = """
        from spillway.running import steady_clock
        loop, real = asyncio.get_running_loop(), steady_clock.steady_seconds
        before = loop.time()
        steady_clock.steady_seconds = lambda: real() + 60
        assert loop.time() - before >= 60
    """
    async with start_child_process(body) as process:
        code, lines, _ = await wait_for_end(process)
    assert (code, lines[-1]["event"]) == (0, "stopped")
