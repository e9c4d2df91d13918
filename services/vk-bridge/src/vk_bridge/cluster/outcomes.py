"""How the writing of one step of a pod came out."""

from typing import Final

DONE: Final = "done"
WAITS: Final = "waits"
CONFLICT: Final = "conflict"
FAILED: Final = "failed"
