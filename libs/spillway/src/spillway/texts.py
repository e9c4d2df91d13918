"""Sentences for people, and the words in them that more than one service knows."""

from typing import Final

ON_HOLD: Final = "on hold: "
"""In a status's message, before what the work on the object waits for."""


def counted(count: int, noun: str = "replica") -> str:
    """1 replica, 2 replicas."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def waiting(count: int, whose: str) -> str:
    """1 replica of … waits, 2 replicas of … wait."""
    return f"{counted(count)} {whose} {'waits' if count == 1 else 'wait'}"


def on_hold(message: str) -> str:
    """What a status says of a hold, ON_HOLD in front; empty when it says of none."""
    _, words, reason = message.partition(ON_HOLD)
    return words + reason


def before_hold(message: str) -> str:
    """What a status says beside its hold."""
    return message.partition(ON_HOLD)[0].removesuffix("; ")
