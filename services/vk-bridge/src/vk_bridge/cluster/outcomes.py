"""Defines the outcomes of one step for a pod: it was carried out, waits, met a conflict, or failed."""

from typing import Final

DONE: Final = "done"
WAITS: Final = "waits"
CONFLICT: Final = "conflict"
FAILED: Final = "failed"
