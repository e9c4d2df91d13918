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
    large_page_objects: int = 3
    """The fewest, where a page is longer than max_response_bytes: so many of max_object_bytes are no longer."""
    page_slack_objects: int = 100
    """A page may have so many more than were asked for; servers have none."""
    list_objects_max: int = 500_000
    """Of one list. Beyond any of these bounds the list fails, as one that cannot be read, and the cluster grows old."""
    list_bytes_max: int = 2 * 2**30
    """Of the fields that are kept of one list's objects, as `answers.weight` has it: 6 to 12 KB of a pod."""
    whole_list_bytes_max: int = 512 * 2**20
    """The same of a list that is read as whole manifests: some 30 KB of a pod."""
    list_seconds_max: float = 600.0
    """For all pages of one list; servers forget where one stands after about five minutes."""
    too_much_pause_seconds: float = 60.0
    """At least so long after a list that was beyond one of them: each costs as much as all other clusters' together."""
    read_attempts: int = 3
    """Times that a read is tried when the server answers 429 or 5xx; a write only for 429, which says: not done."""
    first_pause_seconds: float = 0.5
    """Pauses double from this one to the longest, each shortened by up to half at random."""
    longest_pause_seconds: float = 10.0
    max_empty_lines: int = 100
    """In a row in a watch; servers send none."""
    watch_step_lines: int = 256
    """After so many lines of a watch all else of the process has its turn, however fast more of them come."""
    max_response_bytes: int = 32 * 2**20
    """Of one answer, such as a page of a list; 500 pods are some 4 to 10 MiB."""
    max_refusal_bytes: int = 2 * 2**20
    """Of an answer that says why there is none; it waits for no turn."""
    max_object_bytes: int = 10 * 2**20
    """Of one object; in etcd it is at most 1.5 MiB, and JSON writes six bytes for some of its characters."""
    max_line_bytes: int = 11 * 2**20
    """Of one event of a watch, which has one object in it."""
    large_body_bytes: int = 2**20
    """An answer is large from here on: it goes on being taken in once it has its turn, and waits for that."""
    large_bodies_of_one_cluster: int = 2
    """Turns at one time, to one cluster; the probe has its own."""
    large_bodies_at_once: int = 16
    """Turns at one time, of all clusters of a process: with max_response_bytes, 512 MiB."""
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
