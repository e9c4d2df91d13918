"""A real Redis that keeps its data across a restart."""

from pathlib import Path

import pytest
import redis

from spillway_local.ports import session_port
from spillway_local.programs import Stage, start_child
from spillway_local.redis_server import RedisServer
from spillway_local.supervision import Supervision


@pytest.mark.redis
def test_a_restart_keeps_the_data(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, session_port())
    child = start_child(server.prepare_program(), tmp_path / "log")
    try:
        child.wait_ready(server.is_ready, 10.0)
        _open_redis_client(server.url).set("loaf", "rye")
        child.stop()
        assert not server.is_ready()
        child = start_child(server.prepare_program(), tmp_path / "log")
        child.wait_ready(server.is_ready, 10.0)
        assert _open_redis_client(server.url).get("loaf") == "rye"
    finally:
        child.stop()


@pytest.mark.redis
def test_supervision_knows_it_for_its_own(tmp_path: Path) -> None:
    """Else the next `spillway up` takes its port for a stranger's and moves it, and who asks it is started again."""
    server, supervision = RedisServer(tmp_path / "redis", session_port()), Supervision(tmp_path / "run")
    try:
        supervision.start([Stage("store", (server.prepare_program(),), server.is_ready)])
        assert server.port in supervision.occupied_ports()
    finally:
        supervision.stop()


@pytest.mark.redis
def test_the_session_server_is_empty(redis_url: str) -> None:
    assert _open_redis_client(redis_url).dbsize() == 0


def _open_redis_client(url: str) -> "redis.Redis":
    return redis.Redis.from_url(url, decode_responses=True)
