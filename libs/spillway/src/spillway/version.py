"""The version of this code, as each process reports it: the release, and a digest of the messages that it knows.

Two processes of one release with different digests were built from different states of it. Each ignores fields of the
other that it does not know.
"""

from importlib.metadata import version as version_of
from typing import Final
from zlib import crc32

from spillway.v1 import events_pb2, lending_pb2, planner_pb2, scaling_pb2


def _digest_of_messages() -> str:
    digest = 0
    for messages in (events_pb2, planner_pb2, scaling_pb2, lending_pb2):
        digest = crc32(messages.DESCRIPTOR.serialized_pb, digest)
    return f"{digest:08x}"


VERSION: Final = f"{version_of('spillway')}+{_digest_of_messages()}"
