"""Deliberately wrong options: each is refused in words that name it, its value and what was expected."""

from pathlib import Path
from typing import Any

import pytest

HUGE = "99999999999999999999"
AT_NOBODY = ("--kafka", "127.0.0.1:9")
NO_FOLDER = "Invalid value for '--folder': dir 'file' is a file."

WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "an endpoint without a port": (
        ("--endpoint", "nonsense", "list"),
        "endpoints: 'nonsense' from flag: expected host",
    ),
    "a port that is a word": (("--endpoint", "a:b", "list"), "endpoints: 'a:b' from flag: expected host:port"),
    "a port beyond all": (("--endpoint", "a:65536", "list"), "endpoints: 'a:65536' from flag: expected host:port"),
    "IPv6 without brackets": (("--scaling-endpoint", "::1:7410", "list"), "scaling_endpoints: '::1:7410' from flag"),
    "one of Kafka's without a port": (("--kafka", "a:9092,b", "topics"), "kafka: 'b' from flag: expected host:port"),
    "a config that is a folder": (("--config", ".", "list"), "config file .: is a directory"),
    "a number that is none": (("doctor", "--seconds", "x"), "'--seconds': 'x': Input should be a valid number"),
    "a number too small": (("get", "web", "--history", "-1"), "'--history': '-1': Input should be greater"),
    "a number without end": (("doctor", "--seconds", "inf"), "'--seconds': 'inf': Input should be less than or equal"),
    "a cost without end": (
        ("lending", "declare", "a", "--pool", "p", "--cost", "inf"),
        "'--cost': 'inf': Input",
    ),
    "a word of none of its words": (
        ("get", "web", "-o", "x"),
        "'-o': 'x' is not one of 'table', 'wide', 'json'",
    ),
    "more replicas than fit": (("scale", "web", "--replicas", HUGE), f"replicas: {HUGE}: expected a number within 64"),
    "fewer replicas than fit": (("scale", "web", "--replicas", f"-{HUGE}"), f"replicas: -{HUGE}: expected a number"),
    "more to suppose": (("explain", "web", "--replicas", HUGE), f"replicas: {HUGE}: expected a number within 64 bits"),
    "more grace": (("recall", "own-1", "--grace", HUGE), f"grace_seconds: {HUGE}: expected a number within 64 bits"),
    "none to move": (("migrate", "workload", "web", "--to", "b", "--replicas", "0"), "'--replicas': '0': Input should"),
    "no label of a fleet": (
        (*AT_NOBODY, "topics", "--fleet-name", "A B"),
        "fleet name: 'A B': expected letters",
    ),
    "a long name of a fleet": ((*AT_NOBODY, "topics", "--fleet-name", "a" * 55), "at most 54"),
    "no copy": (("topics", "--replication-factor", "0"), "--replication-factor 0: expected a number of copies, or -1"),
    "up in a file": (("up", "--folder", "file"), NO_FOLDER),
    "down in a file": (("down", "--folder", "file"), NO_FOLDER),
    "processes in a file": (("processes", "--folder", "file"), NO_FOLDER),
    "a demo in a file": (("demo", "--folder", "file"), NO_FOLDER),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_value_and_what_was_expected(
    spillway: Any, arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = spillway(*arguments)
    said = " ".join(result.stderr.replace("│", " ").split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in said


def test_down_where_nothing_was_ever_started_says_so(spillway: Any) -> None:
    result = spillway("down", "--folder", "none")
    assert (result.exit_code, result.stderr) == (0, "nothing was started in none\n")
