"""Names of the gRPC trailers of an answer."""

from typing import Final

LEADER_TRAILER: Final = "spillway-leader"
"""The trailer with the address of the active instance."""
VERSION_TRAILER: Final = "spillway-version"
PUSHBACK_TRAILER: Final = "grpc-retry-pushback-ms"
"""gRPC's own name for the milliseconds that a client must wait at least before it tries again."""
