"""Ports are below the ephemeral range, free, and stay with their name."""

import socket
from pathlib import Path

import pytest

from spillway_local.ports import FIRST_EPHEMERAL_PORT, LOOPBACK, NoFreePort, PortBook, free_port, is_free, session_port


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
    port = PortBook(tmp_path / "ports.json").assign_port("kafka", base)
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        server.listen()
        assert PortBook(tmp_path / "ports.json").assign_port("kafka", base) == port


def test_two_names_never_share_a_port(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "run" / "ports.json")
    base = session_port(count=5)
    kafka = book.assign_port("kafka", base, count=2)
    redis = book.assign_port("redis", base)
    assert redis not in {kafka, kafka + 1}
    assert set(book.port_by_name().values()) == {kafka, kafka + 1, redis}


def test_a_start_passes_over_what_another_start_was_given_and_has_not_bound_yet(tmp_path: Path) -> None:
    base = session_port(count=8)
    mine, theirs = PortBook(tmp_path / "mine" / "ports.json"), PortBook(tmp_path / "theirs" / "ports.json")
    with mine.held_ports(ours=()), theirs.held_ports(ours=()):
        kafka = mine.assign_port("kafka", base, count=2)
        assert theirs.assign_port("kafka", base, count=2) >= kafka + 2


def test_a_start_that_is_over_holds_nothing(tmp_path: Path) -> None:
    base = session_port(count=8)
    book = PortBook(tmp_path / "ports.json")
    with book.held_ports(ours=()):
        port = book.assign_port("kafka", base)
        assert not is_free(port)
    assert is_free(port)


def test_a_recorded_port_that_others_took_since_is_given_up_with_those_in_its_row(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports.json")
    base = session_port(count=8)
    kafka, redis = book.assign_port("kafka", base, count=2), book.assign_port("redis", base)
    with socket.socket() as stranger:
        stranger.bind((LOOPBACK, kafka + 1))
        stranger.listen()
        with book.held_ports(ours=()) as taken:
            assert taken == {"kafka+1": kafka + 1}
            assert book.assign_port("kafka", base, count=2) > redis
            assert book.assign_port("redis", base) == redis


def test_a_recorded_port_where_a_server_of_ours_listens_stays(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports.json")
    base = session_port()
    port = book.assign_port("redis", base)
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        server.listen()
        with book.held_ports(ours={port}) as taken:
            assert taken == {}
            assert book.assign_port("redis", base) == port
