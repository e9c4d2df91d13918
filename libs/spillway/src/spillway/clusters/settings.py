"""The settings of requests to a cluster's API and of its credentials: time-outs, pauses, sizes, connections."""

from dataclasses import dataclass
from random import Random

from spillway.http_client import ANSWERS, LOG_ANSWERS, AnswerBounds
from spillway.pauses import doubled_pause_seconds


@dataclass(frozen=True, slots=True)
class PluginBounds:
    """Limits for one run of an exec plugin. Beyond a limit its process group is killed, and reading the credentials
    fails."""

    seconds: float = 30.0
    """The longest time of a run. A plugin that asks a cloud for a token takes some seconds."""
    output_bytes: int = 256 * 2**10
    """The most bytes of standard output. A token has some KB, a chain of certificates some tens of KB."""
    error_bytes: int = 4 * 2**10
    """The last bytes of standard error that are kept. An error text quotes the last line."""


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """Times for reading a cluster's credentials again although the cluster has not refused them."""

    reading_seconds: float = 45.0
    """The longest wait for one reading, a plugin's run included. A longer reading goes on and its result is used."""
    ahead_seconds: float = 60.0
    """Seconds before their end at which credentials are renewed in the background, at most a fifth of their time."""
    look_seconds: float = 60.0
    """Seconds between two checks whether files of a token or client certificate changed, as in client-go."""
    failed_pause_seconds: float = 10.0
    """Seconds until a failed renewal is tried again, and between two runs of a plugin whose credentials had already
    ended."""


@dataclass(frozen=True, slots=True)
class ClusterApiSettings:
    connect_timeout_seconds: float = 5.0
    """The longest time to open one connection."""
    request_timeout_seconds: float = 30.0
    """The longest time for one whole answer. A list is one request for each page."""
    probe_timeout_seconds: float = 5.0
    """The longest time for each of the probe's two requests."""
    watch_idle_seconds: float = 90.0
    """A watch that sends nothing for this long counts as dead. Servers send a bookmark about every 60 s."""
    watch_shortest_seconds: int = 240
    """The server ends each watch after a random time between watch_shortest_seconds and watch_longest_seconds, so that
    clusters do not all resume at once."""
    watch_longest_seconds: int = 480
    page_objects: int = 500
    """Objects that are requested in one page of a list."""
    large_page_objects: int = 3
    """The fewest objects of a page, used when pages are longer than response_bytes_max. One answer has room for this
    many objects of object_bytes_max."""
    page_slack_objects: int = 100
    """Objects that a page may have beyond the requested limit. API servers send none."""
    list_objects_max: int = 500_000
    """The most objects of one list, and of the watches after it. Beyond this bound or one of the next three, the list
    fails as unreadable, and the known state of the cluster ages."""
    list_bytes_max: int = 2 * 2**30
    """The most bytes of the kept fields of one list, and as many of the watches after it, as
    `answers.estimated_memory_bytes` estimates them. A pod takes 6 to 12 KB."""
    whole_list_bytes_max: int = 512 * 2**20
    """Bytes of one list that is read as whole manifests, by the same estimate. A pod takes some 30 KB."""
    list_seconds_max: float = 600.0
    """Seconds for all pages of one list. API servers forget the place in a list after about five minutes."""
    too_much_pause_seconds: float = 60.0
    """Seconds until a list beyond one of these bounds is tried again. Such a list costs as much as the lists of all
    other clusters together."""
    read_attempts: int = 3
    """Attempts of a read when the server answers 429 or 5xx. A write is repeated only after 429, which means not
    done."""
    first_pause_seconds: float = 0.5
    """The first pause. Each pause doubles, up to the longest, and is shortened at random by up to half."""
    longest_pause_seconds: float = 10.0
    empty_lines_max: int = 100
    """Empty lines in a row of a watch. API servers send none."""
    watch_step_lines: int = 256
    """Lines of a watch that are handled before other tasks of the process get the event loop."""
    response_bytes_max: int = 32 * 2**20
    """Bytes of one answer, such as a page of a list. 500 pods take 4 to 10 MiB."""
    refusal_bytes_max: int = 2 * 2**20
    """Bytes of a refusal. A refusal does not wait for a place among the large answers."""
    object_bytes_max: int = 10 * 2**20
    """Bytes of one object. etcd stores at most 1.5 MiB, and JSON writes six bytes for some characters."""
    line_bytes_max: int = 11 * 2**20
    """Bytes of one event of a watch, which contains one object."""
    large_body_bytes: int = 2**20
    """Bytes from which an answer counts as large. It then waits for a place before the rest is received."""
    large_bodies_of_one_cluster: int = 2
    """Large answers of one cluster at a time. The probe has a place of its own."""
    large_bodies_at_once: int = 16
    """Large answers of all clusters of a process at a time. With response_bytes_max they take 512 MiB."""
    connections_max: int = 32
    """The most connections to one cluster at one time, watches included. The probe has its own."""
    answer_bounds: AnswerBounds = ANSWERS
    """Limits for the bytes that a server sends outside the body of an answer."""
    log_answer_bounds: AnswerBounds = LOG_ANSWERS
    log_streams_max: int = 16
    """The most pod logs that are read at one time. They have connections of their own; one more log is refused."""
    log_stream_seconds: float = 4 * 3600.0
    """The longest time that a log is followed, even if its pod still writes. A kubelet ends a log that was silent for
    this long."""
    field_manager: str = "spillway"

    def pause_seconds(self, setbacks: int, random: Random) -> float:
        longest = doubled_pause_seconds(self.first_pause_seconds, self.longest_pause_seconds, setbacks - 1)
        return random.uniform(longest / 2, longest) if setbacks else 0.0
