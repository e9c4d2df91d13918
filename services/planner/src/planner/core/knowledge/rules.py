"""The numbers that decisions depend on. Each is written into every decision's record."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class PlannerRules:
    """The planner's rules. All times are in seconds.

    capacity_age_max: nothing new is placed in a cluster whose capacity is older than this.
    bind_quiet, bind_wait_max: replicas that only possibly fit wait for binds until no bind came for bind_quiet, at most
    bind_wait_max.
    take_back_after: an unbound replica is placed elsewhere after that time.
    hold_min, hold_max, hold_not_owned_max: after a take-back the cluster gets no more of the shape for hold_min. Each
    further pause is twice as long, up to hold_max. If another owner's object has the workload's name, the workload's
    pauses go from hold_max to hold_not_owned_max.
    missing_after: after that time, replicas whose cluster lacks an object wait for it and reserve nothing.
    lent_wait: a workload that waits for lent nodes uses a later tier after that time.
    lent_silence: for that time no workload waits for a cluster's lent nodes, after a wait in which no loan changed.
    roll_stands: a template that requests more no longer waits for an earlier change that had no progress for so long.
    forget_after: tombstones of a deleted workload are written after that time.
    key_kept, keys_kept_max, answers_bytes_max: limits of kept idempotency keys with their answers: time, number, bytes.
    replans_max: the number of waiting workloads that one step tries, at most.
    round_seconds, round_kind_seconds: the time after which a round leaves further workloads to the next one, and the
    least time that each kind of its work has.
    looks_max: the number of rooms of waiting shapes after which one step computes those of no further cluster.
    moves_per_minute: replicas a minute that may move without a request by name.
    confirm_over_fraction, confirm_over_replicas: moves above both numbers need a confirmation. The first is a fraction
    of the fleet's replicas.
    confirmation_kept: a confirmation is forgotten that long after its cause ended.
    home_after: overflow goes home once there has been room for that long.
    home_margin: fraction of the workload's replicas that must fit at home in addition.
    home_moves_per_minute: the most replicas that go home in any minute.
    namespace_bytes_max, namespace_workloads_max: the most that one namespace may declare, with objects that go along.
    """

    capacity_age_max: float = 30.0
    bind_quiet: float = 2.0
    bind_wait_max: float = 15.0
    take_back_after: float = 15.0
    missing_after: float = 60.0
    lent_wait: float = 60.0
    lent_silence: float = 600.0
    roll_stands: float = 60.0
    hold_min: float = 15.0
    hold_max: float = 300.0
    hold_not_owned_max: float = 3600.0
    forget_after: float = 3600.0
    key_kept: float = 3600.0
    keys_kept_max: int = 32
    answers_bytes_max: int = 256 * 1024
    replans_max: int = 50
    round_seconds: float = 0.25
    round_kind_seconds: float = 0.05
    looks_max: int = 1000
    moves_per_minute: float = 600.0
    confirm_over_fraction: float = 0.1
    confirm_over_replicas: int = 10
    confirmation_kept: float = 30.0
    home_after: float = 60.0
    home_margin: float = 0.1
    home_moves_per_minute: float = 60.0
    namespace_bytes_max: int = 64 * 2**20
    namespace_workloads_max: int = 20_000

    @classmethod
    def from_text(cls, text: str) -> "PlannerRules":
        """Reads the rules from a text of to_text(). Unknown names are ignored; missing rules have their default."""
        kinds = {"int": int, "float": float}
        known = {entry.name: kinds[str(getattr(entry.type, "__name__", entry.type))] for entry in fields(cls)}
        given = dict(entry.split("=", 1) for entry in text.split())
        return cls(**{name: known[name](value) for name, value in given.items() if name in known})

    def to_text(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
