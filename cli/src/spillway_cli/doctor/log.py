"""Judges the log (topics, partitions, configs, copies and disks) and the store."""

from collections import Counter
from collections.abc import Iterator, Mapping

from spillway.addresses import SCOPE_ONE, TOPIC_BY_NAME, TOPICS
from spillway.kafka.inspection import DiskFound, LogFound, TopicFound
from spillway.kafka.topics import TopicSettings, configs_of
from spillway.store import StoreFound
from spillway.texts import counted_noun
from spillway_cli.doctor.checks import Check, failed_check, ok_check, shown_names_text, skipped_check, warning_check
from spillway_cli.output import resource_amount_text

DISK_FREE_FRACTION_MIN, DISK_FREE_FRACTION_LOW = 0.05, 0.15
STORE_FRACTION_MAX = 0.9
_SAFE_COPIES = 3
_LOSES = ("cleanup.policy", "max.message.bytes")
"""Topic configs that must have our value. Otherwise the log loses records, or refuses records of ours."""


def check_log(found: LogFound, fleet: str, settings: TopicSettings) -> list[Check]:
    """Judges the log. fleet: the fleet that it must belong to; empty: any. settings: as for the topics command."""
    missing = [topic.name for topic in TOPICS if topic.name not in found.topics]
    if missing:
        topics = failed_check(
            "topics", f"missing: {shown_names_text(missing)}", "`spillway topics` creates what is missing"
        )
        return [topics, *_check_disks(found)]
    topics = ok_check("topics", f"all {len(TOPICS)} are there, on {counted_noun(found.brokers, 'broker')}")
    return [
        topics,
        _check_log_fleet(found, fleet),
        _check_partitions(found.topics),
        *_check_topic_configs(found, settings),
        *_check_copies(found),
        *_check_disks(found),
    ]


def _check_log_fleet(found: LogFound, fleet: str) -> Check:
    if not found.fleet:
        return failed_check("fleet", "this log has no fleet yet", "`spillway topics --fleet-name NAME` creates one")
    if fleet and fleet != found.fleet:
        hint = "is this the right broker? After a lost log: docs/tour.md, What runs already"
        return failed_check(
            "fleet", f"the log belongs to fleet {found.fleet}, but the setting `fleet` is {fleet}", hint
        )
    return ok_check("fleet", found.fleet)


def _check_partitions(topics: Mapping[str, TopicFound]) -> Check:
    """Judges the numbers of partitions: 1 for the scope `one`; in any other scope, the same for all topics."""
    wrong = []
    for scope in {topic.scope for topic in TOPICS}:
        counts = {topic.name: topics[topic.name].partitions for topic in TOPICS if topic.scope == scope}
        # Nobody knows the intended number, so the most frequent one of the scope counts as right.
        wanted = 1 if scope == SCOPE_ONE else Counter(counts.values()).most_common(1)[0][0]
        wrong += [f"{name} has {count}, not {wanted}" for name, count in counts.items() if count != wanted]
    if not wrong:
        return ok_check("partitions", f"{sum(topic.partitions for topic in topics.values())} in all")
    hint = "whether it may be deleted and created again: docs/operations.md, Partitions that differ"
    return failed_check("partitions", shown_names_text(sorted(wrong)), hint)


def _check_topic_configs(found: LogFound, settings: TopicSettings) -> Iterator[Check]:
    untold = sorted(name for name, topic in found.topics.items() if not topic.configs)
    if untold:
        hint = "the right DESCRIBE_CONFIGS on topics; docs/security.md, Kafka"
        yield skipped_check("cleanup, sizes and retention", f"are not readable: {shown_names_text(untold)}", hint)
        return
    losing: list[str] = []
    other: list[str] = []
    for name, topic in found.topics.items():
        for config, wanted in configs_of(TOPIC_BY_NAME[name], settings).items():
            there = topic.configs.get(config)
            if there is not None and set(there.split(",")) != set(wanted.split(",")):
                (losing if config in _LOSES else other).append(f"{name}: {config} is {there}, not {wanted}")
    hint = "kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config CONFIG=VALUE"
    if losing:
        yield failed_check(
            "cleanup and sizes",
            shown_names_text(sorted(losing)),
            f"fix it at once, because records may be lost: {hint}",
        )
    else:
        yield ok_check("cleanup and sizes", "compaction and the largest record are as they must be")
    if other:
        yield warning_check("retention and lag", shown_names_text(sorted(other)), hint)
    else:
        yield ok_check("retention and lag", "as designed")


def _check_copies(found: LogFound) -> Iterator[Check]:
    leaderless = sorted(name for name, topic in found.topics.items() if topic.leaderless)
    if leaderless:
        yield failed_check(
            "leaders",
            f"partitions without a leader: {shown_names_text(leaderless)}",
            "start the brokers that are down",
        )
    behind = sorted(name for name, topic in found.topics.items() if topic.behind)
    if behind:
        yield warning_check(
            "copies in sync", f"not all are: {shown_names_text(behind)}", "is a broker down, or its disk slow?"
        )
    fewest = min(topic.copies for topic in found.topics.values())
    insync = {
        name: int(topic.configs["min.insync.replicas"])
        for name, topic in found.topics.items()
        if "min.insync.replicas" in topic.configs
    }
    above = sorted(name for name, least in insync.items() if least > found.topics[name].copies)
    equal = sorted(name for name, least in insync.items() if least == found.topics[name].copies > 1)
    one = sorted(name for name, least in insync.items() if least < 2 <= found.topics[name].copies)
    if above:
        hint = "lower min.insync.replicas, or add copies (kafka-reassign-partitions.sh)"
        yield failed_check(
            "copies", f"fewer than min.insync.replicas, nothing can be written: {shown_names_text(above)}", hint
        )
    elif fewest == 1:
        hint = "for more than a trial: three brokers, three copies, min.insync.replicas=2; docs/operations.md, Install"
        yield warning_check("copies", "1 copy of each record: the log is lost with its disk", hint)
    elif one:
        hint = "min.insync.replicas=2: else what was acknowledged may be on one disk alone"
        yield warning_check(
            "copies", f"{fewest}, but one copy is enough to acknowledge a record: {shown_names_text(one)}", hint
        )
    elif equal or fewest < _SAFE_COPIES:
        hint = "three copies with min.insync.replicas=2 bear the loss of one broker without a pause"
        yield warning_check("copies", f"{fewest}: with one broker down nothing can be written", hint)
    else:
        sure = f", {min(insync.values())} before it is acknowledged" if insync else ""
        yield ok_check("copies", f"{fewest} of each record{sure}")


def _check_disks(found: LogFound) -> Iterator[Check]:
    for disk in found.disks:
        yield _check_disk(disk)


def _check_disk(disk: DiskFound) -> Check:
    name = f"disk of broker {disk.broker}" + (f" {disk.path}" if disk.path else "")
    if disk.trouble:
        hint = "the broker's own log says why"
        if disk.may_not_ask:
            hint = "the right DESCRIBE on the cluster; Kafka 3.3 or newer"
        return skipped_check(name, f"is not known: {disk.trouble}", hint)
    if disk.size <= 0:
        return ok_check(name, f"{_bytes_text(disk.used)} of partitions")
    free = disk.free / disk.size
    text = f"{_bytes_text(disk.used)} of partitions, {free:.0%} of the volume is free"
    if free < DISK_FREE_FRACTION_MIN:
        return failed_check(
            name, text, "a full disk stops the broker: enlarge the volume, or delete what is not Kafka's"
        )
    if free < DISK_FREE_FRACTION_LOW:
        return warning_check(name, text, "enlarge the volume before it is full: docs/operations.md, Size")
    return ok_check(name, text)


def _bytes_text(count: int) -> str:
    return f"{resource_amount_text('memory', count)}B"


def check_store(found: StoreFound, fleet: str) -> Check:
    """Judges the store. No decision depends on it, so a fault costs only history. fleet: empty if it is not known."""
    used = f"{_bytes_text(found.bytes_used)} used"
    if not found.writes:
        hint = "is it a replica, or its disk full? `redis-cli INFO persistence replication`"
        return failed_check("Redis", f"answers, and takes no writes; {used}", hint)
    if found.evicted:
        hint = "it forgets history: raise maxmemory, or lower SPILLWAY_PLANNER_HISTORY_KEPT_MAX"
        return warning_check("Redis", f"has evicted {found.evicted} keys because its memory is full; {used}", hint)
    if found.bytes_max and found.bytes_used > STORE_FRACTION_MAX * found.bytes_max:
        return warning_check("Redis", f"{used} of {_bytes_text(found.bytes_max)}", "raise maxmemory")
    if fleet and not found.filled:
        hint = "the active planner fills it within seconds; if it stays so, does the planner have this URL?"
        return warning_check("Redis", f"has nothing of fleet {fleet}; {used}", hint)
    return ok_check("Redis", f"answers, {used}")
