"""What a simulated kubelet gives of a pod's log, in virtual time; how it comes through the API: tests/contract."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.core.pod_logs import LINES_KEPT
from sim.manifests import pod
from sim.rest import SimTransport
from sim.settings import Faults, NodeSpec
from spillway.clusters.api import TransportStatus

pytestmark = pytest.mark.looptime
LOG = "/api/v1/namespaces/default/pods/p/log"


async def read_log(cluster: SimCluster, path: str = LOG, **params: str) -> str:
    async with aclosing(SimTransport(cluster).stream(path, params)) as chunks:
        return b"".join([chunk async for chunk in chunks]).decode()


async def refusal_of_log(cluster: SimCluster, path: str = LOG, **params: str) -> tuple[int, str]:
    with pytest.raises(TransportStatus) as raised:
        await read_log(cluster, path, **params)
    return raised.value.status, raised.value.body.decode()


async def start_pod(client_of: Any, cluster: SimCluster) -> None:
    cluster.add_nodes([NodeSpec("n", 1)])
    await client_of(cluster).create_pod(pod("p"))
    await asyncio.sleep(2)


async def test_a_log_is_given_as_it_is_asked_for(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        await start_pod(client_of, cluster)
        await asyncio.sleep(100)
        cluster.write_log("default", "p", "one\ntwo")
        await asyncio.sleep(10)
        cluster.write_log("default", "p", "three")
        assert await read_log(cluster) == "main of p started\none\ntwo\nthree\n"
        assert await read_log(cluster, tailLines="2") == "two\nthree\n"
        assert await read_log(cluster, tailLines="0") == ""
        assert await read_log(cluster, sinceSeconds="5") == "three\n"
        assert await read_log(cluster, sinceTime="2026-01-01T00:01:50Z") == "three\n"
        assert await read_log(cluster, limitBytes="7") == "main of"
        assert await read_log(cluster, tailLines="1", timestamps="true") == "2026-01-01T00:01:52.000000000Z three\n"


async def test_a_followed_log_ends_with_its_pod(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        await start_pod(client_of, cluster)
        reading = asyncio.create_task(read_log(cluster, follow="true", tailLines="0"))
        for number in range(3):
            await asyncio.sleep(60)
            cluster.write_log("default", "p", f"line {number}")
        assert not reading.done()
        await client_of(cluster).send_request("DELETE", "/api/v1/namespaces/default/pods/p")
        await asyncio.sleep(2)
        assert await reading == "line 0\nline 1\nline 2\n"


async def test_a_reader_of_a_long_log_gets_what_is_kept(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        await start_pod(client_of, cluster)
        async with aclosing(SimTransport(cluster).stream(LOG, {"follow": "true"})) as chunks:
            assert [await anext(chunks), await anext(chunks)] == [b"", b"main of p started\n"]
            cluster.write_log("default", "p", "\n".join(str(number) for number in range(2 * LINES_KEPT)))
            late = (await anext(chunks)).decode().splitlines()
        assert (late[0], late[-1], len(late)) == (str(LINES_KEPT), str(2 * LINES_KEPT - 1), LINES_KEPT)


async def test_what_cannot_be_read_is_refused(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        assert (await refusal_of_log(cluster))[0] == 404
        await start_pod(client_of, cluster)
        assert "is not valid for pod p" in (await refusal_of_log(cluster, container="other"))[1]
        assert "previous terminated" in (await refusal_of_log(cluster, previous="true"))[1]
        assert (await refusal_of_log(cluster, tailLines="-1"))[0] == 422
        assert (await refusal_of_log(cluster, sinceSeconds="soon"))[0] == 400
        assert (await refusal_of_log(cluster, sinceTime="soon"))[0] == 400
        cluster.set_faults(Faults(unauthorized=True))
        assert (await refusal_of_log(cluster))[0] == 401
        cluster.set_faults(Faults())
        slow = pod("q")
        slow["metadata"]["annotations"] = {"sim/start-seconds": "never"}
        await client_of(cluster).create_pod(slow)
        await asyncio.sleep(2)
        assert "is waiting to start" in (await refusal_of_log(cluster, LOG.replace("/p/", "/q/")))[1]
        with pytest.raises(KeyError):
            cluster.write_log("default", "p", "x", "other")
