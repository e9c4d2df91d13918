"""Ends a command with an exit code and one line on stderr."""

import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, TypeVar

import typer

from spillway_cli.terminal_text import harmless_text

T = TypeVar("T")

HELP = (
    "Exit codes: 0 done · 1 failed or refused · 2 wrong usage or input, also an unknown name · 3 placed only "
    "in part (replicas wait for room) · 4 planner, hpa, descheduler or Kafka not reachable · 5 timed out · "
    "130 interrupted."
)

DEBUG_VARIABLE = "SPILLWAY_DEBUG"


class Code(IntEnum):
    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    IN_PART = 3
    UNAVAILABLE = 4
    TIMED_OUT = 5
    INTERRUPTED = 130


class CommandFailed(Exception):
    """Ends the command with an exit code and one sentence."""

    def __init__(self, text: str, code: Code = Code.FAILED) -> None:
        super().__init__(text)
        self.code = code


def bad_input_error(text: str) -> CommandFailed:
    return CommandFailed(text, Code.BAD_INPUT)


_CODE_BY_STATUS = {
    "INVALID_ARGUMENT": Code.BAD_INPUT,
    "NOT_FOUND": Code.BAD_INPUT,
    "OUT_OF_RANGE": Code.BAD_INPUT,
    "UNAVAILABLE": Code.UNAVAILABLE,
    "DEADLINE_EXCEEDED": Code.TIMED_OUT,
}


def exit_code_of(error: Exception) -> Code:
    if isinstance(error, CommandFailed):
        return error.code
    from spillway.api_errors import RequestError

    if isinstance(error, RequestError):
        return _CODE_BY_STATUS.get(error.code, Code.FAILED)
    from spillway.bus import BusUnavailable
    from spillway.settings import OperatorError

    if isinstance(error, BusUnavailable):
        return Code.UNAVAILABLE
    if isinstance(error, OperatorError):
        return Code.BAD_INPUT
    return Code.FAILED


def run_or_exit(work: Coroutine[Any, Any, T]) -> T:
    """Runs the work of a command to its end. An error ends the command with one line on stderr and an exit code."""
    import asyncio

    with exiting_on_error():
        return asyncio.run(work)


@contextmanager
def exiting_on_error() -> Iterator[None]:
    """Ends the command on an error inside: with one line on stderr and an exit code, never with a traceback."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError) as ended:
        _ignore_stdout()
        raise typer.Exit(Code.INTERRUPTED if isinstance(ended, KeyboardInterrupt) else Code.DONE) from None
    except typer.Exit:
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        print_message(_error_line(error))
        raise typer.Exit(exit_code_of(error)) from None


def print_message(text: str) -> None:
    """Prints a message for people on stderr, so that stdout has only what was asked for."""
    typer.echo(harmless_text(text), err=True)


def make_waiting_printer() -> Callable[[str], None]:
    """Returns a function that prints on stderr what the command waits for, unless it is the same as last time."""
    last = ""

    def print_if_new(text: str) -> None:
        nonlocal last
        if text != last:
            print_message(f"waiting: {text}")
            last = text

    return print_if_new


def _error_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, CommandFailed) or any(isinstance(error, kind) for kind in _worded_error_types()):
        return f"spillway: {text}"
    return f"spillway: unexpected {type(error).__name__}: {text} ({DEBUG_VARIABLE}=1 shows where)"


def _worded_error_types() -> Iterator[type[Exception]]:
    """Yields the library's error classes with texts for users. They are imported only after a command has failed."""
    from spillway.api_errors import RequestError

    yield RequestError
    from spillway.settings import OperatorError

    yield OperatorError
    from spillway.bus import BusUnavailable, NoLog, OtherFleet

    yield from (BusUnavailable, NoLog, OtherFleet)


def _ignore_stdout() -> None:
    """Drops the rest of stdout, because its reader is gone and the interpreter would complain while it flushes."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
