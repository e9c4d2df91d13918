"""What answers of Prometheus are taken as, from a small server that gives them."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from hpa.external_metrics.connections import PrometheusConnection
from hpa.external_metrics.prometheus import Prometheus, PrometheusSettings, ValueUnknown

SETTINGS = PrometheusSettings(answer_seconds=5.0, answer_bytes_max=10_000)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer_text(kind: str, result: object) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def result_series(*values: str) -> list[object]:
    return [{"metric": {"pod": str(index)}, "value": [1.5, value]} for index, value in enumerate(values)]


class Server:
    """Answers every query with what a test sets."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    async def answer_query(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.query["query"], request.headers.get("Authorization", "")))
        assert self.handler is not None
        return await self.handler(request)

    def set_answer(self, text: str, status: int = 200) -> None:
        async def answer_with_text(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=text)

        self.handler = answer_with_text


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_get("/prefix/api/v1/query", made.answer_query)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prefix/"
    yield made
    await runner.cleanup()


@pytest.fixture
async def door(server: Server) -> AsyncIterator[Prometheus]:
    made = Prometheus(PrometheusConnection(server.url), SETTINGS)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(answer_text("vector", result_series("2.5")), 2_500, id="a vector of one"),
        pytest.param(answer_text("scalar", [1.5, "7"]), 7_000, id="a scalar"),
        pytest.param(answer_text("vector", []), None, id="an empty vector"),
        pytest.param(
            answer_text("vector", result_series("-1.25")), -1_250, id="negative, which is whoever decides to judge"
        ),
        pytest.param(answer_text("vector", result_series("1e-9")), 0, id="cut off below a thousandth"),
        pytest.param(answer_text("vector", result_series("1.5e3")), 1_500_000, id="an exponent"),
    ],
)
async def test_one_number_is_its_value(server: Server, door: Prometheus, text: str, expected: int | None) -> None:
    server.set_answer(text)
    assert await door.value_milli('sum(rate(x{a="b c"}[1m]))') == expected
    assert server.asked == [('sum(rate(x{a="b c"}[1m]))', "")]


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        pytest.param(answer_text("vector", result_series("1", "2")), 200, "2 series", id="two series"),
        pytest.param(answer_text("vector", result_series("NaN")), 200, "the value is NaN", id="NaN"),
        pytest.param(answer_text("vector", result_series("+Inf")), 200, r"the value is \+Inf", id="Inf"),
        pytest.param(answer_text("vector", result_series("1e300")), 200, "expected at most", id="too large"),
        pytest.param(answer_text("vector", result_series("many")), 200, "not a time and a number", id="no number"),
        pytest.param(
            answer_text("scalar", [0, 10**400]), 200, "not a time and a number", id="an integer beyond all floats"
        ),
        pytest.param(answer_text("vector", [{"metric": {}}]), 200, "not a time and a number", id="a histogram"),
        pytest.param(answer_text("vector", ["x"]), 200, "not a time and a number", id="no series"),
        pytest.param(answer_text("matrix", []), 200, "type 'matrix'", id="a range"),
        pytest.param(answer_text("string", [1, "x"]), 200, "type 'string'", id="a text"),
        pytest.param('{"status":"success"}', 200, "type ''", id="no data"),
        pytest.param('{"status":"error","errorType":"bad_data","error":"parse"}', 400, "bad_data: parse", id="refused"),
        pytest.param('{"status":"error"}', 503, "HTTP status 503", id="an error without words"),
        pytest.param(answer_text("scalar", [1.5, "7"]), 500, "HTTP status 500", id="a value with a bad status"),
        pytest.param("<html>bad gateway</html>", 502, "502, not an answer", id="a proxy's page"),
        pytest.param("[" * 100_0, 200, "not an answer", id="garbage"),
        pytest.param('"' + "x" * 20_000 + '"', 200, "more than 10000 bytes", id="huge"),
        pytest.param("", 302, "HTTP status 302", id="a redirect"),
    ],
)
async def test_all_else_is_unknown_and_says_why(
    server: Server, door: Prometheus, text: str, status: int, why: str
) -> None:
    server.set_answer(text, status)
    with pytest.raises(ValueUnknown, match=why):
        await door.value_milli("up")


async def test_a_redirect_is_not_followed(server: Server, door: Prometheus) -> None:
    async def redirect_query(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{server.url}api/v1/query?query=elsewhere")

    server.handler = redirect_query
    with pytest.raises(ValueUnknown):
        await door.value_milli("up")
    assert [query for query, _ in server.asked] == ["up"]


async def test_what_is_compressed_is_not_unpacked(server: Server, door: Prometheus) -> None:
    """A few bytes may be endless then."""

    async def answer_compressed(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        body = gzip.compress(answer_text("scalar", [1, "1"]).encode())
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    server.handler = answer_compressed
    with pytest.raises(ValueUnknown, match="in the encoding 'gzip': expected identity"):
        await door.value_milli("up")


async def test_no_cookie_is_kept(server: Server) -> None:
    """A server could give new ones with each answer."""
    cookies = list[str]()

    async def answer_with_cookie(request: web.Request) -> web.StreamResponse:
        cookies.append(request.headers.get("Cookie", ""))
        return web.Response(text=answer_text("scalar", [1, "1"]), headers={"Set-Cookie": "a=b; Path=/"})

    server.handler = answer_with_cookie
    # By a name: of addresses aiohttp keeps no cookies anyway.
    door = Prometheus(PrometheusConnection(server.url.replace("127.0.0.1", "localhost")), SETTINGS)
    for _ in range(2):
        assert await door.value_milli("up") == 1_000
    await door.close()
    assert cookies == ["", ""]


async def test_a_server_whose_answer_never_begins_is_unknown_before_its_time() -> None:
    """Interim answers without an end keep the event loop from all else while they are read."""

    async def send_headers_without_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000)
        assert await reader.read() == b""
        writer.close()

    raw = await asyncio.start_server(send_headers_without_answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{raw.sockets[0].getsockname()[1]}"
    door = Prometheus(PrometheusConnection(url), PrometheusSettings(answer_seconds=60.0))
    with pytest.raises(ValueUnknown, match="ServerMisbehaved: the server sent more than 8 interim answers"):
        await door.value_milli("up")
    await door.close()
    raw.close()
    await raw.wait_closed()


async def test_an_answer_that_does_not_come_is_unknown(server: Server) -> None:
    async def wait_without_answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.handler = wait_without_answer
    door = Prometheus(PrometheusConnection(server.url), PrometheusSettings(answer_seconds=0.2))
    with pytest.raises(ValueUnknown, match=r"no answer within 0\.2 s"):
        await door.value_milli("up")
    await door.close()


async def test_a_server_that_is_not_there_is_unknown_until_it_is(server: Server) -> None:
    door = Prometheus(PrometheusConnection("http://127.0.0.1:1"), SETTINGS)
    with pytest.raises(ValueUnknown, match="ClientConnectorError"):
        await door.value_milli("up")
    await door.close()


async def test_the_token_is_read_for_each_question(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    door = Prometheus(PrometheusConnection(server.url, bearer_token_file=str(token)), SETTINGS)
    server.set_answer(answer_text("scalar", [1, "1"]))
    with pytest.raises(ValueUnknown, match="No such file"):
        await door.value_milli("up")
    for text in ("first\n", "second"):
        token.write_text(text)
        await door.value_milli("up")
    assert [header for _, header in server.asked] == ["Bearer first", "Bearer second"]
    await door.close()
