"""Positions of watches: what came from a caller is a position that was given, or INVALID_ARGUMENT."""

import base64
import zlib

import pytest

from planner.api.watches import position_token, read_position
from spillway.addresses import WORKLOADS
from spillway.api import RequestError


def packed_token(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def test_a_position_is_read_as_it_was_given() -> None:
    positions = {(WORKLOADS.name, 0): 17, (WORKLOADS.name, 1): 2**63 - 1}
    assert read_position(position_token(positions)) == positions


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "x" * 20_000,
        packed_token("[" * 200_000),
        packed_token("{" * 10),
        packed_token('{"a": 1}'),
        packed_token("[1]"),
        packed_token(f'[["{WORKLOADS.name}", 0, Infinity]]'),
        packed_token(f'[["{WORKLOADS.name}", -Infinity, 1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, NaN]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, 1e999]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, -1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, {2**63}]]'),
        packed_token(f'[["{WORKLOADS.name}", {2**31}, 1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, {"9" * 10_000}]]'),
        packed_token('[["another", 0, 1]]'),
    ],
    ids=lambda token: token[:24],
)
def test_whatever_else_is_sent_is_refused(token: str) -> None:
    with pytest.raises(RequestError, match=r"position: .*expected a position that Watch returned") as refused:
        read_position(token)
    assert refused.value.code == "INVALID_ARGUMENT"
