"""Which version this code is, as each process tells it: the release, and a digest of the messages that it knows.

Two processes of one release with different digests were built from different states of it: what one says in a field
that the other has not, that one passes over.
"""

from importlib.metadata import version as version_of
from typing import Final
from zlib import crc32

from spillway.v1 import events_pb2, lending_pb2, planner_pb2, scaling_pb2


def _digest() -> str:
    digest = 0
    for messages in (events_pb2, planner_pb2, scaling_pb2, lending_pb2):
        digest = crc32(messages.DESCRIPTOR.serialized_pb, digest)
    return f"{digest:08x}"


VERSION: Final = f"{version_of('spillway')}+{_digest()}"
