"""A broker that asks who one is, with the users of deploy/kafka/acls.sh and the rights that this script grants."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE
from spillway.kafka.access import KafkaAccess, load_kafka_access
from spillway.kafka.bus import KafkaSettings
from spillway.kafka.settings import KAFKA_PREFIX
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway.settings import settings_from_environment
from spillway_local.kafka_security import ADMINISTRATOR, BrokerSecurity
from spillway_local.kafka_server import KafkaServer

SCRIPT = Path(__file__).parents[2] / "deploy" / "kafka" / "acls.sh"
SERVICES = tuple(CLAIM_TOPIC_BY_SERVICE)
ROLES = ("topics", *SERVICES, "cli", "publisher")
USERS = tuple(f"spillway-{role}" for role in ROLES)
ALLOW, ANY, ANY_HOST = 3, 1, "*"
RESOURCE = {"--topic": 2, "--group": 3, "--cluster": 4, "--transactional-id": 5}
CLUSTER = "kafka-cluster"
PATTERN = {"literal": 3, "prefixed": 4}
OPERATION = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}
# Writes down what it is called with: a word a line, an empty line behind each call.
_RECORDER = """#!/bin/sh
for word; do echo "$word"; done >> "$RECORD"
echo >> "$RECORD"
"""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One that the script grants, with the words of kafka-acls.sh."""

    principal: str
    operation: str
    kind: str
    name: str
    pattern: str


def rights_of_script(folder: Path, fleet: str, prefix: str = "") -> list[Right]:
    """What the script asks kafka-acls.sh for, as a shell runs it."""
    recorder, record = folder / "recorder", folder / "record"
    recorder.write_text(_RECORDER)
    recorder.chmod(0o700)
    record.write_text("")
    variables = {
        "BOOTSTRAP": "b:1",
        "COMMAND_CONFIG": "c",
        "FLEET": fleet,
        "PREFIX": prefix,
        "KAFKA_ACLS": str(recorder),
        "RECORD": str(record),
    }
    subprocess.run(["sh", str(SCRIPT)], env=os.environ | variables, check=True, capture_output=True)
    calls = [call.split("\n") for call in record.read_text().strip().split("\n\n")]
    return [right for call in calls for right in _rights_of_call(call)]


def _rights_of_call(call: Sequence[str]) -> Iterator[Right]:
    assert call[:5] == ["--bootstrap-server", "b:1", "--command-config", "c", "--add"]
    words = [word for one in call[5:] for word in ((one, CLUSTER) if one == "--cluster" else (one,))]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    principals = [value for option, value in pairs if option == "--allow-principal"]
    operations = [value for option, value in pairs if option == "--operation"]
    pattern = next((value for option, value in pairs if option == "--resource-pattern-type"), "literal")
    resources = [(option, value) for option, value in pairs if option in RESOURCE]
    assert len(principals) + len(operations) + len(resources) + (pattern != "literal") == len(pairs)
    for principal in principals:
        for operation in operations:
            for kind, name in resources:
                yield Right(principal, operation, kind, name, pattern)


class CreateAcls(CreateAclsRequest):
    """aiokafka's is for one right."""

    def __init__(self, rights: Sequence[Right]) -> None:
        self._entries = [
            (
                *(RESOURCE[right.kind], right.name, PATTERN[right.pattern]),
                *(right.principal, ANY_HOST, OPERATION[right.operation], ALLOW),
            )
            for right in rights
        ]

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._entries)


async def grant_rights(access: KafkaAccess, rights: Sequence[Right]) -> None:
    """As kafka-acls.sh does, without a Java virtual machine for each."""
    admin = AIOKafkaAdminClient(**await access.client_arguments())
    await admin.start()
    try:
        answer = await admin._send_request(CreateAcls(rights))
        assert {code for code, _ in answer.creation_responses} == {0}, answer
    finally:
        await admin.close()


async def rights_at_broker(access: KafkaAccess) -> list[Right]:
    """What the broker has."""
    admin = AIOKafkaAdminClient(**await access.client_arguments())
    await admin.start()
    try:
        answer = await admin._send_request(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY))
    finally:
        await admin.close()
    kinds, patterns, operations = (
        {code: word for word, code in table.items()} for table in (RESOURCE, PATTERN, OPERATION)
    )
    return [
        Right(principal, operations[operation], kinds[kind], name, patterns[pattern])
        for kind, name, pattern, acls in answer.resources
        for principal, _, operation, _ in acls
    ]


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """fleet: empty until it is formed."""

    bootstrap: str
    security: BrokerSecurity
    fleet: str = ""

    def variables_of_role(self, role: str) -> dict[str, str]:
        return {KAFKA_PREFIX + "BOOTSTRAP": self.bootstrap, **self.security.client_environment(f"spillway-{role}")}

    def settings_of_role(self, role: str, **variables: str) -> KafkaSettings:
        """By which a service of this role opens the log."""
        return settings_from_environment(KafkaSettings, self.variables_of_role(role) | variables, KAFKA_PREFIX)

    def access_of_role(self, role: str) -> KafkaAccess:
        return load_kafka_access(self.bootstrap, self.settings_of_role(role).security)

    @property
    def administrator_access(self) -> KafkaAccess:
        variables = {KAFKA_PREFIX + "BOOTSTRAP": self.bootstrap, **self.security.client_environment(ADMINISTRATOR)}
        return load_kafka_access(
            self.bootstrap, settings_from_environment(KafkaSettings, variables, KAFKA_PREFIX).security
        )

    async def form_log(self, folder: Path, settings: TopicSettings) -> str:
        """As docs/security.md says: the rights of `topics`, the topics, the rights of all. Returns the fleet."""
        await grant_rights(self.administrator_access, rights_of_script(folder, ""))
        fleet = await ensure_topics(self.access_of_role("topics"), settings, "secured")
        await grant_rights(self.administrator_access, rights_of_script(folder, fleet))
        return fleet


def make_secured_server(folder: Path, port: int) -> KafkaServer:
    return KafkaServer(folder / "kafka", port, security=BrokerSecurity(folder / "security", USERS))
