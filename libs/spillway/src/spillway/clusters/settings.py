"""How a cluster's API is asked: time-outs, pauses, sizes, connections."""

from dataclasses import dataclass
from random import Random

from spillway.pauses import doubled_seconds


@dataclass(frozen=True, slots=True)
class ClusterApiSettings:
    connect_timeout_seconds: float = 5.0
    """To open one connection."""
    request_timeout_seconds: float = 30.0
    """For one whole answer; a list is one request a page."""
    probe_timeout_seconds: float = 5.0
    """For each of the probe's two requests."""
    watch_idle_seconds: float = 90.0
    """A watch that says nothing for so long is dead; servers send a bookmark about every 60 s."""
    watch_shortest_seconds: int = 240
    """The server ends each watch after a random time between these two, so that clusters do not all resume at once."""
    watch_longest_seconds: int = 480
    page_objects: int = 500
    """Objects asked for in one page of a list."""
    large_page_objects: int = 16
    """The same from the page on that was longer than max_response_bytes: so many of max_line_bytes are no longer."""
    read_attempts: int = 3
    """Times that a read is tried when the server answers 429 or 5xx; a write only for 429, which says: not done."""
    first_pause_seconds: float = 0.5
    """Pauses double from this one to the longest, each shortened by up to half at random."""
    longest_pause_seconds: float = 10.0
    max_empty_lines: int = 100
    """In a row in a watch; servers send none."""
    watch_step_lines: int = 256
    """After so many lines of a watch all else of the process has its turn, however fast more of them come."""
    max_response_bytes: int = 256 * 2**20
    max_line_bytes: int = 16 * 2**20
    """Of one event of a watch; an object in etcd is at most 1.5 MiB, and JSON is at most some times larger."""
    max_connections: int = 32
    """At one time, to one cluster, watches included; the probe has its own."""
    max_log_streams: int = 16
    """Logs of pods read at one time, with connections of their own; one more is refused."""
    log_stream_seconds: float = 4 * 3600.0
    """After so long a log ends, though its pod may write on; kubelets themselves end one that is silent for so long."""
    field_manager: str = "spillway"

    def pause_seconds(self, setbacks: int, random: Random) -> float:
        longest = doubled_seconds(self.first_pause_seconds, self.longest_pause_seconds, setbacks - 1)
        return random.uniform(longest / 2, longest) if setbacks else 0.0
