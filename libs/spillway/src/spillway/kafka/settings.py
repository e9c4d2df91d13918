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

    bootstrap: str = field(metadata={"doc": "host:port of the Kafka brokers, separated by commas"})
    topic_prefix: str = setting("", "prefix of every topic's name, which lets several fleets share a broker")
    publish_seconds: float = constant(
        5.0,
        "seconds that a publish, or a request for the end offsets, may take",
        "a partition gets a new leader in less time; a caller that waited so long had better hear UNAVAILABLE",
    )
    publishes_in_flight_max: int = constant(
        256,
        "largest number of publishes at the same time; further ones wait",
        "this bounds memory; the client combines them to batches, so that more at the same time are no faster",
    )
    write_seconds: float = constant(
        8.0,
        "seconds after which the outcome of a transaction that has not ended counts as unknown",
        "it must be below transaction_seconds, so that the outcome is known before the broker aborts",
    )
    transaction_seconds: float = constant(
        10.0,
        "seconds after which the broker aborts an abandoned transaction",
        "it must be above write_seconds and below hidden_seconds",
    )
    transaction_retry_seconds: float = constant(
        0.005,
        "seconds between two requests of a transaction whether the markers of the previous one are written",
        "brokers write markers within milliseconds, and the request is small",
    )
    marks_seconds: float = constant(
        1.0,
        "seconds that a request for end offsets waits for the markers of transactions",
        "markers follow a commit within milliseconds, and a second is many times that",
    )
    hidden_seconds: float = constant(
        12.0,
        "seconds that commits may stay hidden before an instance gives up its turn; more than a write may take",
        "it must be above write_seconds and transaction_seconds",
    )
    start_seconds: float = setting(30.0, "seconds that a starting process keeps trying to reach the log")
    close_seconds: float = constant(
        2.0,
        "seconds that leaving a consumer group, and closing all connections, may take",
        "a stop waits for it, and the broker ends the remaining connections after the session",
    )
    request_seconds: float = setting(10.0, "seconds that one request to a broker may take")
    retry_seconds: float = constant(
        0.1,
        "first pause in seconds before another try; each further pause doubles",
        "it is short beside all that waits for it, and the pauses double",
    )
    retry_seconds_max: float = constant(
        2.0,
        "longest pause in seconds before another try",
        "it is short beside a broker's restart, and long enough not to overload a broker that comes back",
    )
    idle_batch_seconds: float = constant(
        0.5,
        "longest time in seconds until a feed without new records yields an empty batch",
        "this wakes only the reader, and sends no request to the broker",
    )
    idle_fetch_seconds: float = constant(
        2.0,
        "longest time in seconds that a broker waits for new records before it answers a feed's fetch",
        "new records end the wait at once, however long it may be",
    )
    fetch_sessions: bool = setting(
        True,
        "whether a fetch names only the partitions that the broker must learn of; false: it names all that are read",
    )
    poll_seconds: float = constant(
        0.1,
        "seconds between two checks of a feed whether it received only transaction markers",
        "a check stays within the process, and markers alone wake no reader",
    )
    batch_pause_seconds: float = constant(
        0.02,
        "least seconds between two batches of a feed, so that a few records do not cost a fetch each",
        "nobody notices so short a delay, and a trickle of records needs several times fewer fetches",
    )
    batch_records_max: int = constant(
        2000,
        "largest number of records in one batch",
        "this bounds one step of a reader; further records come with the next batch at once",
    )
    fetch_bytes_max: int = constant(
        16 * 1024 * 1024,
        "largest number of bytes that a feed fetches ahead from one broker",
        "eight of the largest records fit: a feed never waits, and the memory is small beside a process",
    )
    dead_letters_per_minute_max: int = constant(
        100,
        "largest number of unreadable records a minute that one feed accepts on topics that only our services write",
        "our services write there: more is a fault of ours, however large the fleet is",
    )
    open_letters_again_seconds: float = constant(
        600.0,
        "seconds until the next dead letter for the same writer and the same kind of reason, on topics that anyone "
        "may write",
        "one letter tells what is wrong; another one is a reminder",
    )
    open_letters_per_minute_max: int = constant(
        10,
        "largest number of dead letters a minute that one feed writes for such topics, for all writers together",
        "this bounds the cost of strangers' records, and the letters tell how many were left out",
    )
    open_letters_kinds_max: int = constant(
        200,
        "largest number of pairs of writer and kind of reason that a feed tells apart on such topics",
        "this bounds memory against invented writers, and real writers are few",
    )
    session_seconds: float = setting(
        6.0, "seconds after which a silent instance loses the turn of a standby service", least=6
    )
    cluster_session_seconds: float = setting(
        10.0,
        "seconds after which a silent instance loses the turns of its clusters; longer than a restart takes",
        least=6,
    )
    heartbeat_seconds: float = constant(
        1.0,
        "seconds between two heartbeats of an instance to its consumer group",
        "several heartbeats fit into each session, which has at least 6 seconds, and each one is a small request",
    )
    let_go_seconds: float = constant(
        2.0,
        "seconds that an instance may take to give back a revoked turn",
        "it is below every session, so that the other instances wait no longer than for a dead one",
    )
    fleet_check_seconds: float = constant(
        5.0,
        "seconds between two checks which fleet the log belongs to",
        "the log of another fleet is a rare accident, and the request is small",
    )
    security_protocol: Protocol = setting(
        "PLAINTEXT", "protocol of the brokers: SSL encrypts with TLS, SASL asks for our username"
    )
    sasl_mechanism: Mechanism = setting("SCRAM-SHA-512", "mechanism by which we authenticate to the brokers")
    sasl_username: str = setting("", "our username for SASL")
    sasl_password_file: str = setting("", "file with our password for SASL")
    ssl_ca_file: str = setting("", "PEM file of the CA of the brokers' certificates; empty: the system's CAs")
    ssl_certificate_file: str = setting(
        "", "PEM file of our certificate chain, for brokers that ask for a client certificate"
    )
    ssl_key_file: str = setting("", "PEM file of our private key")

    def __post_init__(self) -> None:
        """Raises ValueError for settings that contradict each other, such as a password without encryption."""
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
            raise ValueError("ssl_certificate_file, ssl_key_file: only one is set: expected both or neither")
        if protocol == "SASL_PLAINTEXT" and self.sasl_mechanism == "PLAIN":
            raise ValueError("sasl_mechanism: 'PLAIN': expected SCRAM, since SASL_PLAINTEXT would show the password")

    @property
    def open_letter_bounds(self) -> LetterBounds:
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
