"""The settings of the connection to Kafka, SPILLWAY_KAFKA_* in the environment, and its constants."""

from dataclasses import dataclass, field

from spillway.kafka.access import KafkaSecurity, Mechanism, Protocol
from spillway.letters_by_writer import LetterBounds
from spillway.settings import constant, setting

KAFKA_PREFIX = "SPILLWAY_KAFKA_"

TOPICS_TRANSACTIONS = "topics"
"""The suffix of the transactional id by which one run of the topics command excludes other runs."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The connection of this process to Kafka.

    Each setting is the variable SPILLWAY_KAFKA_…; a constant has no variable.
    """

    bootstrap: str = field(metadata={"doc": "host:port of brokers, separated by commas"})
    topic_prefix: str = setting("", "put before every topic's name, so that fleets can share a broker")
    publish_seconds: float = constant(
        5.0,
        "how long a publish, or the question for ends, may take, in seconds",
        "longer than a partition takes to get a new leader; who waited so long had better hear UNAVAILABLE",
    )
    publishes_in_flight_max: int = constant(
        256,
        "publishes at once; more wait for their turn",
        "bounds memory; the client makes batches of them, so that more at once are no faster",
    )
    write_seconds: float = constant(
        8.0,
        "how long one transaction may take before its outcome is unknown, in seconds",
        "below transaction_seconds, so that the outcome is known before the broker aborts it",
    )
    transaction_seconds: float = constant(
        10.0,
        "after how long the broker aborts an abandoned transaction, in seconds",
        "above write_seconds and below hidden_seconds: the three are true together alone",
    )
    transaction_retry_seconds: float = constant(
        0.005,
        "how often a transaction asks whether the marks of the one before are written, in seconds",
        "brokers write marks within milliseconds, and the question is a small one",
    )
    marks_seconds: float = constant(
        1.0,
        "how long ends wait for the marks of transactions, in seconds",
        "marks follow a commit within milliseconds; a second is many times that",
    )
    hidden_seconds: float = constant(
        12.0,
        "how long commits may be hidden until a turn is given up; above a write",
        "above write_seconds and transaction_seconds, from which it follows",
    )
    start_seconds: float = setting(30.0, "how long a start keeps trying to reach the log, in seconds")
    close_seconds: float = constant(
        2.0,
        "how long leaving a group, and closing all connections, may take, in seconds",
        "a stop waits for it; what was not closed the broker ends after the session",
    )
    request_seconds: float = setting(10.0, "how long one request to a broker may take, in seconds")
    retry_seconds: float = constant(
        0.1,
        "the first wait before another try, in seconds; doubled each time",
        "short beside all that waits for it, and the pauses double",
    )
    retry_seconds_max: float = constant(
        2.0,
        "the longest wait before another try, in seconds",
        "short beside a broker's restart, long enough not to load one that comes back",
    )
    idle_batch_seconds: float = constant(
        0.5,
        "the longest a feed yields nothing, in seconds",
        "wakes the reader alone, and asks the broker nothing",
    )
    idle_fetch_seconds: float = constant(
        2.0,
        "how long a broker may wait for news of all that a feed reads, in seconds",
        "news end the wait at once, however long it may be",
    )
    fetch_sessions: bool = setting(
        True, "whether a fetch names only the partitions of which the broker is told news; false: all that are read"
    )
    poll_seconds: float = constant(
        0.1,
        "how often a feed looks whether only transaction markers came, in seconds",
        "a look stays within the process; markers alone wake nobody",
    )
    batch_pause_seconds: float = constant(
        0.02,
        "from one batch of a feed to the next at the least, so that few records do not cost a fetch each, seconds",
        "nobody notices so short a delay, and fetches are several times fewer under a trickle of records",
    )
    batch_records_max: int = constant(
        2000,
        "records of one batch",
        "bounds one step of a reader; what is beyond comes with the next batch at once",
    )
    fetch_bytes_max: int = constant(
        16 * 1024 * 1024,
        "bytes that a feed fetches ahead from one broker",
        "eight of the largest records: enough that a feed never waits, little beside a process",
    )
    dead_letters_per_minute_max: int = constant(
        100,
        "unreadable records that one feed bears in a minute, on topics that our services alone write",
        "our services write there: more is a fault of ours, however large the fleet is",
    )
    open_letters_again_seconds: float = constant(
        600.0,
        "of a topic that anyone may write: until the next dead letter of one writer for one kind of reason, seconds",
        "one letter says what is wrong; another is a reminder",
    )
    open_letters_per_minute_max: int = constant(
        10,
        "dead letters of one feed of such topics in a minute, of all writers",
        "bounds what strangers' records cost, and the letters say how many were left out",
    )
    open_letters_kinds_max: int = constant(
        200,
        "writers and kinds of reasons that are told apart there",
        "bounds memory against made-up writers; real ones are few",
    )
    session_seconds: float = setting(
        6.0, "after how long a silent instance loses a standby's turn, in seconds", least=6
    )
    cluster_session_seconds: float = setting(10.0, "the same of its clusters; above what a restart takes", least=6)
    heartbeat_seconds: float = constant(
        1.0,
        "how often an instance shows that it lives, in seconds",
        "several fit into each session, which is 6 seconds at the least, and each is a small request",
    )
    let_go_seconds: float = constant(
        2.0,
        "how long a revoked turn may take to come back, in seconds",
        "below every session, so that the others of the group wait no longer than for a dead instance",
    )
    fleet_check_seconds: float = constant(
        5.0,
        "how often the log is asked whose it is, in seconds",
        "another fleet's log is a rare accident, and the question is a small one",
    )
    security_protocol: Protocol = setting("PLAINTEXT", "what brokers speak: SSL is TLS, SASL asks who we are")
    sasl_mechanism: Mechanism = setting("SCRAM-SHA-512", "how we say who we are")
    sasl_username: str = setting("", "who we are, with SASL")
    sasl_password_file: str = setting("", "file with our password in it, with SASL")
    ssl_ca_file: str = setting("", "file of the CA of the brokers' certificates, PEM; empty: the system's CAs")
    ssl_certificate_file: str = setting("", "file of our own certificate chain, PEM, for brokers that ask for it")
    ssl_key_file: str = setting("", "file of our own private key, PEM")

    def __post_init__(self) -> None:
        """Raises ValueError for settings that contradict each other, as a password that would be sent unencrypted."""
        security, protocol = self.security, self.security_protocol
        for name in ("sasl_username", "sasl_password_file"):
            if security.is_sasl and not getattr(self, name):
                raise ValueError(f"{name}: empty: expected one, since security_protocol is {protocol}")
            if not security.is_sasl and getattr(self, name):
                raise ValueError(f"{name}: set: expected security_protocol SASL_SSL, which is {protocol}")
        for name in ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file"):
            if not security.is_tls and getattr(self, name):
                raise ValueError(f"{name}: set: expected security_protocol SSL or SASL_SSL, which is {protocol}")
        if bool(self.ssl_certificate_file) != bool(self.ssl_key_file):
            raise ValueError("ssl_certificate_file, ssl_key_file: one is set: expected both or neither")
        if protocol == "SASL_PLAINTEXT" and self.sasl_mechanism == "PLAIN":
            raise ValueError("sasl_mechanism: 'PLAIN': expected SCRAM, since SASL_PLAINTEXT would show the password")

    @property
    def open_letters(self) -> LetterBounds:
        return LetterBounds(
            self.open_letters_again_seconds, self.open_letters_per_minute_max, self.open_letters_kinds_max
        )

    @property
    def security(self) -> KafkaSecurity:
        return KafkaSecurity(
            protocol=self.security_protocol,
            mechanism=self.sasl_mechanism,
            username=self.sasl_username,
            password_file=self.sasl_password_file,
            ca_file=self.ssl_ca_file,
            certificate_file=self.ssl_certificate_file,
            key_file=self.ssl_key_file,
        )


def cluster_group(fleet: str, service: str) -> str:
    """Returns the consumer group in which the instances of a service share the clusters."""
    return f"{fleet}.{service}"


def standby_group(fleet: str, service: str) -> str:
    """Returns the consumer group in which the instances of a service wait for their one turn."""
    return f"{fleet}.{service}.standby"


def transactional_id(prefix: str, fleet: str, service: str) -> str:
    """Returns the transactional id of a turn's writer. A producer that is opened with it fences the previous one."""
    return f"{prefix}{fleet}.{service}"
