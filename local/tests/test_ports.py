"""Ports are below the ephemeral range, free, and stay with their name."""

import socket
from pathlib import Path

import pytest

from spillway_local.ports import FIRST_EPHEMERAL_PORT, LOOPBACK, NoFreePort, PortBook, free_port, session_port


def test_a_port_in_use_is_passed_over() -> None:
    base = session_port(count=3)
    with socket.socket() as server:
        server.bind((LOOPBACK, base))
        server.listen()
        assert free_port(base) > base


def test_ports_in_a_row_skip_what_is_taken() -> None:
    base = session_port(count=4)
    assert free_port(base, count=2, taken={base + 1}) >= base + 2


def test_nothing_is_given_from_the_ephemeral_range() -> None:
    with pytest.raises(NoFreePort):
        free_port(FIRST_EPHEMERAL_PORT)


def test_a_name_keeps_its_port_while_its_server_runs(tmp_path: Path) -> None:
    base = session_port(count=2)
    port = PortBook(tmp_path / "ports.json").port("kafka", base)
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        server.listen()
        assert PortBook(tmp_path / "ports.json").port("kafka", base) == port


def test_two_names_never_share_a_port(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "run" / "ports.json")
    base = session_port(count=5)
    kafka = book.port("kafka", base, count=2)
    redis = book.port("redis", base)
    assert redis not in {kafka, kafka + 1}
    assert set(book.recorded().values()) == {kafka, kafka + 1, redis}
