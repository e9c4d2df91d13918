"""Makes deploy/kafka/acls.sh from addresses.py: commands of Kafka's kafka-acls.sh that give each role its rights."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from spillway.addresses import ANYONE, CLAIM_TOPIC_BY_SERVICE, EVERY_READER, FLEET, TOPICS
from spillway.kafka.settings import TOPICS_TRANSACTIONS, cluster_group, standby_group, transactional_id

CLI, PUBLISHER, MAKER = "cli", "publisher", "topics"
"""The roles that are no service: the command, a publisher of loads and backlogs, and the maker of topics."""
MEANINGS = {
    MAKER: "`spillway topics` creates the topics and forms the fleet",
    CLI: "`spillway events` reads every topic and writes none; `spillway doctor` looks at configs and brokers' disks",
    PUBLISHER: "who publishes loads and backlogs, and nothing else",
}
ALL_TOPICS = ("--resource-pattern-type", "prefixed", "--topic", "${PREFIX}spillway.")
WIDTH = 118

HEADER = """\
#!/bin/sh
# What each role may do in Kafka: no more than it needs. Generated from addresses.py by `make docs`; CI compares.
#
#   BOOTSTRAP=kafka:9093 COMMAND_CONFIG=admin.properties FLEET=shop-1a2b3c4d sh deploy/kafka/acls.sh
#
# Run it as one who may alter ACLs, with Kafka's bin folder in PATH, and again after an upgrade: it only adds.
# docs/security.md says how, and who is who.
#   FLEET    what `spillway topics` printed. Without it only `topics` gets its rights, which come first.
#   PREFIX   SPILLWAY_KAFKA_TOPIC_PREFIX, where it is set
#   USERS    what stands before a role in its principal
set -eu
: "${BOOTSTRAP:?host:port of a broker}" "${COMMAND_CONFIG:?file of properties by which an administrator connects}"
FLEET="${FLEET:-}" PREFIX="${PREFIX:-}" USERS="${USERS:-User:spillway-}"

allow() {
    roles=$1
    shift
    for role in $roles; do set -- --allow-principal "$USERS$role" "$@"; done
    "${KAFKA_ACLS:-kafka-acls.sh}" --bootstrap-server "$BOOTSTRAP" --command-config "$COMMAND_CONFIG" --add "$@"
}
"""
BREAK = """
if [ -z "$FLEET" ]; then
    echo "Next: spillway topics, as ${USERS}topics; then this again, with the FLEET that it prints." >&2
    exit 0
fi
"""


@dataclass(frozen=True, slots=True)
class Role:
    """A Kafka user and its topics, groups and transactional ids. Topics are named without the fleet's prefix."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()


def fleet_roles() -> tuple[Role, ...]:
    """Returns the roles that use an existing fleet, in the order of the file."""
    everything = tuple(topic.name for topic in TOPICS)
    anyones = tuple(topic.name for topic in TOPICS if ANYONE in topic.emitters)
    services = tuple(_service_role(name) for name in CLAIM_TOPIC_BY_SERVICE)
    return (*services, Role(CLI, everything, ()), Role(PUBLISHER, (FLEET.name,), anyones))


def _service_role(name: str) -> Role:
    """Returns the role of a service.

    A service whose turn is in a committed topic has a standby group and writes in transactions. Instances of other
    services share the clusters by a consumer group.
    """
    reads = tuple(topic.name for topic in TOPICS if name in topic.readers)
    writes = tuple(topic.name for topic in TOPICS if name in topic.emitters or EVERY_READER in topic.emitters)
    if CLAIM_TOPIC_BY_SERVICE[name].committed:
        writer = transactional_id("${PREFIX}", "${FLEET}", name)
        return Role(name, reads, writes, (standby_group("${FLEET}", name),), (writer,))
    return Role(name, reads, writes, (cluster_group("${FLEET}", name),))


def page_text() -> str:
    found = fleet_roles()
    maker = Role(MAKER, (FLEET.name,), (FLEET.name,), (), ("${PREFIX}" + TOPICS_TRANSACTIONS,))
    everyone = " ".join(role.name for role in found)
    parts = [
        HEADER,
        f"# {MAKER}: {MEANINGS[MAKER]}",
        _allow_command(MAKER, "--operation", "Create", "--operation", "DescribeConfigs", *ALL_TOPICS),
        *_allow_commands(maker),
        _allow_command(MAKER, "--operation", "Describe", *ALL_TOPICS),
        BREAK,
        "# Which topics there are, and where they end: whoever opens the log looks whether it is whole.",
        _allow_command(everyone, "--operation", "Describe", *ALL_TOPICS),
    ]
    for role in found:
        parts += [
            "",
            f"# {role.name}{': ' + MEANINGS[role.name] if role.name in MEANINGS else ''}",
            *_allow_commands(role),
        ]
        if role.name == CLI:
            parts.append(_allow_command(CLI, "--operation", "DescribeConfigs", *ALL_TOPICS))
            parts.append(f"allow {CLI} --operation Describe --cluster")
    return "\n".join(parts)


def _allow_commands(role: Role) -> Iterator[str]:
    for operation, kind, names in (
        ("Read", "--topic", tuple("${PREFIX}" + name for name in role.reads)),
        ("Write", "--topic", tuple("${PREFIX}" + name for name in role.writes)),
        ("Read", "--group", role.groups),
        ("Write", "--transactional-id", role.transactions),
    ):
        if names:
            yield _allow_command(
                role.name, "--operation", operation, *(word for name in names for word in (kind, name))
            )


def _allow_command(roles: str, *words: str) -> str:
    """Returns one `allow` command for these options and values, broken into lines between two options."""
    pairs = zip(words[::2], words[1::2], strict=True)
    parts = [f"allow {shlex.quote(roles)}", *(f"{option} {_shell_quoted(value)}" for option, value in pairs)]
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return " \\\n".join(lines)


def _shell_quoted(value: str) -> str:
    return f'"{value}"' if "$" in value else shlex.quote(value)
