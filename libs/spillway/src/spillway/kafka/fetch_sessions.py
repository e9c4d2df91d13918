"""Fetch sessions (KIP-227) for aiokafka's consumer: a fetch names only the partitions whose request has changed.

aiokafka names all partitions that it follows in each fetch, and so does the answer. These are hundreds, most without
new records, and Python reads and writes each field by field. With a session, request and answer contain only changes. A
fetch of all followed partitions may wait longer for records, since any new record ends it. aiokafka leaves out a
partition whose last records were not taken yet. New records there wait until the fetch ends, so such a fetch is short.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.errors import FetchSessionIdNotFound
from aiokafka.protocol.fetch import FetchRequest

from spillway.kafka.internals import FetchTerms, fetch_terms

Partition = tuple[str, int]
"""The name of a topic and the number of its partition."""
Wanted = Mapping[Partition, tuple[int, int]]
"""The offset to fetch from and the most bytes to fetch, by partition."""
OPENS, NO_SESSION = 0, -1
"""Epochs of a request for all partitions: with OPENS the broker opens a session, with NO_SESSION it does not."""
EPOCH_MAX = 2**31 - 1


class FetchSession:
    """The session with one broker, which gets one request at a time. After an error a new session is opened.

    number: the broker's number for it; 0: none yet. epoch: the epoch of the next request.
    followed: all partitions that were ever requested.
    """

    def __init__(self) -> None:
        self.number = 0
        self.epoch = OPENS
        self.followed: set[Partition] = set()
        self._known: dict[Partition, tuple[int, int]] = {}

    def find_changes(self, wanted: Wanted) -> tuple[dict[Partition, tuple[int, int]], list[Partition]]:
        """Returns the changes for the broker: partitions with their new offset and size, and partitions to forget."""
        known = self._known if self.epoch > OPENS else {}
        news = {place: asked for place, asked in wanted.items() if known.get(place) != asked}
        self.followed.update(wanted)
        return news, [place for place in known if place not in wanted]

    def note_answer(self, wanted: Wanted, number: int, error: int) -> None:
        """Updates the session after the broker's answer. number: 0 if the broker has none. error: Kafka's code or 0."""
        if error:
            was_new = self.epoch <= OPENS
            self.note_failure()
            self.number = 0 if error == FetchSessionIdNotFound.errno else self.number
            # A broker that opens no session is fetched from without one. After another error a new one is opened.
            self.epoch = NO_SESSION if was_new else OPENS
            return
        self._known = dict(wanted)
        self.number = number
        if number and self.epoch != NO_SESSION:
            # KIP-227: after the largest epoch comes 1, because 0 opens a new session.
            self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1

    def note_failure(self) -> None:
        """Makes the next request open a new session, because the broker may not have received the last one."""
        self.epoch = min(self.epoch, OPENS)


class SessionFetch(FetchRequest):  # type: ignore[misc]
    """A fetch as part of a session. wait_ms: how long the broker may wait for new records."""

    def __init__(
        self, terms: FetchTerms, session: FetchSession, forgotten: Iterable[Partition], news: Wanted, wait_ms: int
    ) -> None:
        topics = [
            (topic, [(partition, *asked) for partition, asked in partitions])
            for topic, partitions in _entries_by_topic(news.items())
        ]
        super().__init__(
            wait_ms, terms.min_bytes, terms.max_bytes, terms.isolation_level, topics, rack_id=terms.rack_id
        )
        self._session = session.number, session.epoch
        self._forgotten = _entries_by_topic((place, None) for place in forgotten)

    def build(self, request_struct_class: Any) -> Any:
        built = super().build(request_struct_class)
        built.session_id, built.session_epoch = self._session
        built.forgotten_topics_data = [(topic, [one for one, _ in there]) for topic, there in self._forgotten]
        return built


def _entries_by_topic(entries: Iterable[tuple[Partition, Any]]) -> list[tuple[str, list[tuple[int, Any]]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for (topic, partition), asked in entries:
        found.setdefault(topic, []).append((partition, asked))
    return list(found.items())


class SessionClient:
    """The client that aiokafka's fetcher uses: each fetch becomes part of a session with its broker.

    Fetches have a connection of their own: a broker answers the requests of a connection one after the other, and other
    requests must not wait for new records. sessions: by broker. answers: the number of answered fetches.
    idle_wait_ms: how long a fetch of all followed partitions may wait. follows: returns whether a partition is read.
    """

    def __init__(self, client: Any, idle_wait_ms: int, follows: Callable[[TopicPartition], bool]) -> None:
        self._client = client
        self._idle_wait_ms = idle_wait_ms
        self._follows = follows
        self.cluster = client.cluster  # An attribute, since it is read for each partition of each fetch.
        self.sessions: dict[int, FetchSession] = {}
        self.answers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await self._client.send(node_id, request, **options)
        session = self.sessions.setdefault(node_id, FetchSession())
        wanted = {(topic, one): (offset, size) for topic, there in request.topics for one, offset, size in there}
        news, forgotten = session.find_changes(wanted)
        is_whole = session.epoch > OPENS and not self._is_partition_left_out(node_id, session, wanted)
        terms = fetch_terms(request)
        wait_ms = self._idle_wait_ms if is_whole else terms.max_wait_ms
        fetch = SessionFetch(terms, session, forgotten, news, wait_ms)
        try:
            answer = await self._client.send(node_id, fetch, group=ConnectionGroup.COORDINATION)
        except BaseException:
            session.note_failure()
            raise
        # Versions without sessions have neither field.
        session.note_answer(wanted, getattr(answer, "session_id", 0), getattr(answer, "error_code", 0))
        self.answers += 1
        return answer

    def _is_partition_left_out(self, node_id: int, session: FetchSession, wanted: Wanted) -> bool:
        """Returns whether the fetch leaves out a partition that is read from this broker."""
        if len(session.followed) > len(wanted):
            others = [place for place in session.followed if place not in wanted]
            session.followed.difference_update(place for place in others if not self._is_read_from(node_id, place))
        return len(session.followed) > len(wanted)

    def _is_read_from(self, node_id: int, place: Partition) -> bool:
        whole = TopicPartition(*place)
        return self._follows(whole) and bool(self.cluster.leader_for_partition(whole) == node_id)
