"""Reads the records of planner and hpa in the order of the log, and finds contradictions.

Examples are a generation that goes back, and two placements with one generation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, PLACEMENTS, SCALE, WORKLOADS
from spillway.bus import Record, has_reached_ends
from spillway.events import PlacementDecided, TurnTaken, WorkloadDeclared
from spillway.events_scaling import ScaleDecided
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.model import Generation, Part

from .ledger import Finding

ENDS_SECONDS = 60.0
"""The longest wait for the end offsets of topics from a broker that has just restarted on a busy machine."""
TOPICS = (PLACEMENTS, WORKLOADS, SCALE, *CLAIM_TOPIC_BY_SERVICE.values())


@dataclass(slots=True)
class LogAudit:
    """The audit of one log: the positions read so far, the log's fleet, and the last record of each key.

    claims: the number of turns taken, by service. moves: the number of these that another instance had before.
    """

    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    fleet: str = ""
    claims: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)
    _placements: dict[str, PlacementDecided] = field(default_factory=dict)
    _workloads: dict[str, WorkloadDeclared] = field(default_factory=dict)
    _parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    _sizes: dict[str, ScaleDecided] = field(default_factory=dict)

    async def read_new_findings(self, bootstrap: str) -> list[Finding]:
        """Returns the findings in the records since the last call."""
        settings = KafkaSettings(bootstrap, publish_seconds=ENDS_SECONDS, start_seconds=ENDS_SECONDS)
        async with KafkaBus(settings, "", "chaos") as bus:
            self.fleet = bus.fleet_id
            if not self.positions:
                self.positions = {(topic.name, n): 0 for topic in TOPICS for n in range(bus.partition_count(topic))}
            async with bus.follow_topics(TOPICS, self.positions) as feed:
                ends, found = await feed.end_offsets(), list[Finding]()
                async for batch in feed:
                    found += self.check_records(batch.records)
                    self.positions.update(batch.positions)
                    if has_reached_ends(batch.positions, ends):
                        break
        return found

    def check_records(self, records: Iterable[Record]) -> Iterator[Finding]:
        for record in records:
            event = record.event
            if event is None:
                self._placements.pop(record.key, None)
                self._workloads.pop(record.key, None)
            elif isinstance(event, TurnTaken):
                self._note_claim(event)
            elif isinstance(event, PlacementDecided):
                yield from self._check_placement(record.key, event)
            elif isinstance(event, WorkloadDeclared):
                yield from self._check_declaration(record.key, event)
            elif isinstance(event, ScaleDecided):
                yield from self._check_size(record.key, event)

    def _note_claim(self, event: TurnTaken) -> None:
        place = (event.service, event.cluster)
        self.claims[event.service] += 1
        self.moves[event.service] += self._owners.get(place, event.instance) != event.instance
        self._owners[place] = event.instance

    def _check_placement(self, key: str, event: PlacementDecided) -> Iterator[Finding]:
        before = self._placements.get(key)
        self._placements[key] = event
        if before is not None and event.generation <= before.generation:
            same = "again" if event == before else "differently"
            yield _contradiction(f"{key}: placed {same} at {event.generation} after {before.generation}")
        for part in event.parts:
            yield from self._check_part(key, part, event.generation)

    def _check_part(self, key: str, part: Part, generation: Generation) -> Iterator[Finding]:
        before = self._parts.get((key, part.cluster))
        self._parts[key, part.cluster] = part
        if before is None:
            return
        if part.version < before.version:
            yield _contradiction(f"{key} in {part.cluster}: version {part.version} after {before.version}")
        if part.version == before.version and (part.replicas, part.removing) != (before.replicas, before.removing):
            both = f"{before.replicas} and {part.replicas} replicas at {part.version} ({generation})"
            yield _contradiction(f"{key} in {part.cluster}: {both}")

    def _check_declaration(self, key: str, event: WorkloadDeclared) -> Iterator[Finding]:
        before = self._workloads.get(key)
        self._workloads[key] = event
        if before is None:
            return
        if event.generation < before.generation:
            yield _contradiction(f"{key}: declared at generation {event.generation} after {before.generation}")
        if event.generation == before.generation and event.replicas != before.replicas:
            yield _contradiction(f"{key}: {before.replicas} and {event.replicas} replicas at one generation")

    def _check_size(self, key: str, event: ScaleDecided) -> Iterator[Finding]:
        """Checks that generations of sizes rise, also after a policy was deleted and declared again."""
        before = self._sizes.get(key)
        self._sizes[key] = event
        if before is not None and event.generation <= before.generation:
            yield _contradiction(f"{key}: size decided at {event.generation} after {before.generation}")


def _contradiction(text: str) -> Finding:
    return Finding("contradictory", text)
