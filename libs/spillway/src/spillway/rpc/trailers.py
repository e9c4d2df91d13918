"""Names of the gRPC trailers of an answer."""

from typing import Final

LEADER_TRAILER: Final = "spillway-leader"
"""The address of the active instance."""
VERSION_TRAILER: Final = "spillway-version"
PUSHBACK_TRAILER: Final = "grpc-retry-pushback-ms"
"""gRPC's own name. A client waits at least so many milliseconds before it tries again."""
