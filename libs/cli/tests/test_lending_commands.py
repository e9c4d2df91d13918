"""Commands on lent nodes against a descheduler on loopback: what is asked, what is printed, how a command ends."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spillway import api_lending as lending
from spillway.api import RequestError
from spillway.model import Generation
from spillway.rpc import LENDING, RpcServer, RpcSettings
from spillway_cli.main import app

NODE = lending.LentNode(
    "own-1", "n1", "pool", "own-1.n1", Generation(7, 9), "big", "idle", "Recalled", "Need", (("cpu", 4000),), 3, 1, 2,
    ("own-1/shop/web",), "2 pods leave",
)  # fmt: skip
IDLE = lending.IdleNode("own-1", "n2", "big", "Forgotten", 8000, 9, 8, 0, 0, 0, -1, 0, "give it back")


class FakeLending:
    """Answers with one node a page; notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_active = True

    def leader(self) -> str:
        return "me"

    async def list_lent(self, request: lending.ListLentRequest) -> lending.ListLentReply:
        self.asked.append(request)
        return lending.ListLentReply((NODE,), "" if request.page_token else "more", stale=True)

    async def recall(self, request: lending.RecallRequest) -> lending.RecallReply:
        self.asked.append(request)
        if "n9" in request.nodes:
            raise RequestError("NOT_FOUND", "nodes: not lent by own-1: n9")
        return lending.RecallReply((NODE,), 1)

    async def idle_report(self, request: lending.IdleReportRequest) -> lending.IdleReportReply:
        self.asked.append(request)
        return lending.IdleReportReply((IDLE,), 2, 1, 12_000, 7_000, 500, 1, 2, "")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[FakeLending, str]]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    fake, address, loop, stop = FakeLending(), Future[str](), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with RpcServer(fake, RpcSettings(port=0, stop_seconds=0.1), LENDING) as server:  # type: ignore[arg-type]
            address.set_result(server.address)
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    yield fake, address.result(10)
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


def run(address: str, *arguments: str) -> Any:
    environ = {"SPILLWAY_LENDING_ENDPOINTS": address, "SPILLWAY_RETRY_SECONDS": "0.3", "TERM": "dumb"}
    return CliRunner(env=environ).invoke(app, list(arguments))


def test_lent_shows_every_page_and_that_it_may_be_old(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run(address, "lent", "own-1", "-o", "json")
    assert result.exit_code == 0
    assert [node["node"] for node in json.loads(result.stdout)] == ["n1", "n1"]
    assert [request.page_token for request in fake.asked] == ["", "more"]
    assert "not the active one" in result.stderr
    assert "Need, own-1/shop/web" in run(address, "lent").stdout


def test_recall_names_nodes_and_says_how_many(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run(address, "recall", "own-1", "n1", "--grace", "5", "--reason", "sold", "--plan")
    assert (result.exit_code, result.stderr) == (0, "1 node would be recalled of own-1\n")
    assert fake.asked == [lending.RecallRequest("own-1", ("n1",), 5, "sold", plan_only=True)]


def test_a_refusal_ends_with_its_text(answers: tuple[FakeLending, str]) -> None:
    _, address = answers
    result = run(address, "recall", "own-1", "n9")
    assert result.exit_code == 1
    assert "not lent by own-1: n9" in result.stderr


def test_idle_report_says_what_is_known_by_requests_alone(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run(address, "idle", "report", "--hours", "24")
    assert fake.asked == [lending.IdleReportRequest("", 24, 500, "")]
    assert "requests only" in result.stdout
    assert "give it back" in result.stdout
    assert "of 1 only requests are known" in result.stderr


def test_a_descheduler_that_is_not_there_is_named() -> None:
    result = run("127.0.0.1:1", "lent")
    assert result.exit_code == 4
    assert "descheduler not reachable" in result.stderr
