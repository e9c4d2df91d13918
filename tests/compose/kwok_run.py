"""In the stand-in for kwok/cluster: a real control plane with kwok; its API is on 8080 and asks nobody who he is."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from spillway_local.member_credentials import MemberAccess
from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.ports import PortBook
from spillway_local.programs import running_stages

FOLDER = Path("/root/member")
PORT = 8080
PASSED_ON = ("Content-Type", "Accept", "Accept-Encoding")
ENDED = threading.Event()


async def serve_api_to_others(access: MemberAccess) -> None:
    """Passes requests on as the administrator, bodies and watches piece by piece, until SIGTERM."""
    connector = aiohttp.TCPConnector(limit=0, ssl=access.ssl_context())
    async with aiohttp.ClientSession(
        connector=connector,
        headers=access.headers,
        skip_auto_headers=PASSED_ON,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:

        async def pass_on_request(request: web.Request) -> web.StreamResponse:
            headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
            url = access.server + request.raw_path
            body = await request.read()
            async with session.request(request.method, url, headers=headers, data=body or None) as answer:
                passed = web.StreamResponse(status=answer.status)
                for name in ("Content-Type", "Content-Encoding"):
                    if name in answer.headers:
                        passed.headers[name] = answer.headers[name]
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
                return passed

        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", pass_on_request)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", PORT).start()
        await asyncio.to_thread(ENDED.wait)
        await runner.cleanup()


@contextmanager
def run_control_plane() -> Iterator[MemberAccess]:
    ports = PortBook(FOLDER / "ports.json")
    members = KubeMembers(FOLDER, FOLDER / "credentials", (MemberSpec("member"),), ports, Path("/kube/kube-member"))
    with running_stages(members.prepare_stages(), FOLDER / "logs"):
        (member,) = members.members()
        yield member.access


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ENDED.set())
    with run_control_plane() as access:
        asyncio.run(serve_api_to_others(access))


if __name__ == "__main__":
    main()
