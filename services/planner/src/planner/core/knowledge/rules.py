"""The numbers that decisions depend on; each is written into every decision's record."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Rules:
    """All in seconds unless the name says otherwise.

    capacity_age_max: nothing new is placed on capacity that is older. bind_quiet, bind_wait_max: replicas that only
    possibly fit wait for binds until none came for so long, at most so long (P5). take_back_after: an unbound
    replica is placed elsewhere (P6); the cluster is then held for hold_min, doubling to hold_max; where somebody
    else's object has the name, for hold_max, doubling to hold_not_owned_max. missing_after: the same for want of
    something that its template names: then it waits for that, and reserves nothing. lent_wait: who
    waits for lent nodes goes to a later tier then; where none of them moved meanwhile nobody waits for
    lent_silence. roll_stands: a template that asks for more waits no longer for an earlier change that stood for so
    long. forget_after: tombstones of what was deleted. key_kept, keys_kept_max, answers_bytes_max:
    idempotency keys with their answers. replans_max: waiting workloads tried in one step. looks_max: rooms of
    waiting shapes looked at in one step, after which it looks at no other cluster. moves_per_minute: replicas that
    move though nobody asked for it by name. confirm_over_fraction of the fleet's replicas, confirm_over_replicas in
    number: above both, such moves need a confirmation. confirmation_kept: it is forgotten
    so long after its cause is over. home_after: overflow goes home once there has been room for so long, for
    home_margin of the workload's replicas more than go; home_moves_per_minute: the most that do in any minute.
    namespace_bytes_max, namespace_workloads_max: what one namespace may have declared, with what goes along.
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
    def of_text(cls, text: str) -> "Rules":
        """What text() gave. What this version does not know is left out; what is not given is as by default."""
        kinds = {"int": int, "float": float}
        known = {entry.name: kinds[str(getattr(entry.type, "__name__", entry.type))] for entry in fields(cls)}
        given = dict(entry.split("=", 1) for entry in text.split())
        return cls(**{name: known[name](value) for name, value in given.items() if name in known})

    def text(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
