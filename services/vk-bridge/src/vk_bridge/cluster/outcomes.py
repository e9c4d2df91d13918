"""Outcomes of writing one step of a pod."""

from typing import Final

DONE: Final = "done"
WAITS: Final = "waits"
CONFLICT: Final = "conflict"
FAILED: Final = "failed"
