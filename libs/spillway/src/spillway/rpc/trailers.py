"""What goes with an answer beside it: names of gRPC trailers."""

from typing import Final

LEADER_TRAILER: Final = "spillway-leader"
"""The address of the active instance."""
VERSION_TRAILER: Final = "spillway-version"
PUSHBACK_TRAILER: Final = "grpc-retry-pushback-ms"
"""gRPC's own name for: not before so many milliseconds."""
