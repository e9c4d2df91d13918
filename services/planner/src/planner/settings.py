"""Settings of the planner, SPILLWAY_PLANNER_* in the environment, and its constants."""

from dataclasses import dataclass

from planner.core.background.headroom import Pace
from planner.core.knowledge.rules import Rules
from planner.log.projection import HistoryBounds
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class PlannerSettings(StandbySettings):
    capacity_age_max_seconds: float = setting(30.0, "oldest capacity that new replicas are placed on, seconds", least=1)
    bind_quiet_seconds: float = constant(
        2.0,
        "possible but not certain: waited for so long without a bind, seconds",
        "longer than a scheduler takes from one bind to the next",
    )
    bind_wait_max_seconds: float = constant(
        15.0,
        "possible but not certain: waited for at the most, seconds",
        "as take_back_after by default: later the wait is no better than a promise elsewhere",
    )
    refuse_after_seconds: float = constant(
        1.0,
        "a request that has no room is refused once all clusters were heard of since it came, after this at the latest",
        "a caller waits for it; clusters that are well are heard of sooner",
    )
    take_back_after_seconds: float = setting(
        15.0, "an unbound replica is placed elsewhere after this, seconds", least=0
    )
    missing_after_seconds: float = setting(
        60.0,
        "an unbound replica whose cluster lacks something that its template names (a Secret, a claim, a class) waits "
        "for that after this, and reserves nothing any more, seconds",
        least=0,
    )
    lent_wait_seconds: float = setting(
        60.0, "who waits for lent nodes to come back goes to a later tier after this, seconds", least=0
    )
    lent_silence_seconds: float = constant(
        600.0,
        "a cluster whose lent nodes did not move meanwhile is not waited for again for so long, seconds",
        "nodes that were not given back in one wait are hardly given back in the next few",
    )
    roll_stands_seconds: float = constant(
        60.0,
        "a template that asks for more waits for an earlier change in its cluster (a roll, a scale-in), but no longer "
        "once that made no progress for so long, seconds",
        "a roll that goes on makes progress sooner; one that does not must be replaceable",
    )
    hold_min_seconds: float = constant(
        15.0,
        "first pause of a shape in a cluster after a take-back, seconds",
        "the pauses double, so that only the first one is short",
    )
    hold_max_seconds: float = constant(
        300.0,
        "longest such pause; each one doubles, seconds",
        "a cluster that refuses a shape is tried again often enough, at hardly any cost",
    )
    hold_not_owned_max_seconds: float = constant(
        3600.0,
        "longest pause of a workload in a cluster where somebody else's object has its name, or that of what goes "
        "along; the first one is the longest of the others, each one doubles, seconds",
        "only a person ends it, and asks by name then",
    )
    forget_after_seconds: float = constant(
        3600.0,
        "tombstones of a deleted workload after this, seconds",
        "far longer than any writer or reader lags behind; it bounds what deleted workloads cost",
    )
    key_kept_seconds: float = constant(
        3600.0,
        "how long an idempotency key is known, seconds",
        "far longer than clients ask again with the same key; keys_kept_max bounds what is kept",
    )
    keys_kept_max: int = constant(
        32,
        "idempotency keys kept per workload",
        "more than anybody has under way about one workload",
    )
    answers_bytes_max: int = constant(
        256 * 1024,
        "bytes of answers kept with them per workload; the oldest go first, the newest is kept",
        "ten answers over a thousand clusters; they are part of each record of the declaration",
    )
    namespace_bytes_max: int = setting(
        64 * 2**20,
        "bytes of manifests and policies that one namespace may have declared, with ConfigMaps and Services, and what "
        "is kept of each workload besides: earlier templates, shapes, answers; what makes it more is refused",
        least=0,
    )
    namespace_workloads_max: int = setting(
        20_000, "workloads that one namespace may have declared, with deleted ones that are not forgotten yet", least=1
    )
    replans_max: int = constant(
        50,
        "waiting workloads tried in one step",
        "bounds one step; the rest is tried in the next one, a tenth of a second later",
    )
    looks_max: int = constant(
        1000,
        "rooms of waiting shapes looked at in one step; it ends with a whole cluster",
        "bounds one step; the rest is looked at in the next one",
    )
    moves_per_minute: float = setting(
        600.0, "replicas moved a minute that nobody asked for by name; 0 moves none", least=0
    )
    confirm_over_fraction: float = setting(
        0.1, "such moves of more of the fleet's replicas need a confirmation", least=0, most=1
    )
    confirm_over_replicas: int = constant(
        10,
        "moves of at most so many replicas need none, however small the fleet",
        "so few are no accident of a fleet, and a person would be asked all the time",
    )
    confirmation_kept_seconds: float = constant(
        30.0,
        "a confirmation is forgotten so long after its cause, seconds",
        "longer than a cause that comes and goes; a person who confirms reads what is true now",
    )
    shape_wait_seconds: float = constant(
        0.5,
        "how long a template never seen waits for what clusters make of its pods; then it is planned as declared",
        "a caller waits for it; most clusters answer a dry run sooner, and the answer counts when it comes",
    )
    home_after_seconds: float = setting(
        60.0, "overflow goes home once an earlier tier has had room so long, seconds", least=0
    )
    home_margin_fraction: float = constant(
        0.1,
        "of a workload's replicas (at least one): fits at home beside what goes",
        "a tenth keeps replicas from going to and fro; home_after_seconds is what decides when",
    )
    home_moves_per_minute: float = setting(60.0, "overflowed replicas sent home in any minute; 0 sends none", least=0)
    hear_seconds_max: float = constant(
        3.0,
        "how long a planner that takes its turn waits to hear of clusters, seconds",
        "longer than snapshot, by default, is silent about a cluster that is well",
    )
    tick_seconds: float = constant(
        0.1,
        "how often waiting and unbound replicas are looked at, seconds",
        "a tenth of a second is not noticed, and a look at nothing costs nothing",
    )
    asked_again_seconds: float = constant(
        3.0,
        "how long a request that was answered without a decision is awaited again before later ones of its workload",
        "longer than clients pause before they ask again",
    )
    requests_waiting_max: int = setting(2000, "requests that wait for a decision; more are refused", least=1)
    requests_in_group_max: int = constant(
        200,
        "requests decided and written in one transaction; a batch goes whole",
        "bounds one step, and so the wait of the next request; larger transactions are no faster",
    )
    scales_in_group_max: int = constant(
        20,
        "decisions of scale policies declared in one step, after its requests",
        "bounds how long requests wait behind decisions of policies; the rest is declared in the next step",
    )
    failed_pause_seconds: float = constant(
        60.0,
        "how long nothing is decided by itself for a workload whose decision met a bug of the planner's",
        "a bug is met again at hardly any cost, and what ends it is noticed within a minute",
    )
    batch_items_max: int = constant(
        500,
        "Apply and Scale of one PlanBatch, decided and written together",
        "bounds one step, which others wait for; who has more sends several batches",
    )
    find_seconds: float = constant(
        6.0,
        "how long clusters may take to say what runs there, before adopting, seconds",
        "longer than clusters that are well take; one call of a person waits for it",
    )
    recover_events_max: int = constant(
        300,
        "events of one step of a fleet's recovery; the rest waits for the next",
        "bounds one step; the rest waits for the next",
    )
    watches_max: int = constant(
        200,
        "watches open at once",
        "each may hold watch_events_waiting_max changes: the two bound the memory of watches",
    )
    watch_events_waiting_max: int = constant(
        10000,
        "changes that a slow watcher may lag behind before it is ended",
        "far more than one burst of changes; whose watch is ended by it begins anew",
    )
    history_kept_max: int = setting(200, "decisions kept per workload in the store", least=1)
    history_gone_seconds: float = constant(
        604_800.0,
        "seconds that the store keeps the decisions on a workload that is no longer declared",
        "a week, in which somebody asks what became of it; history_kept_max is what Redis' memory depends on",
    )
    history_waiting_max: int = constant(
        5000,
        "decisions that wait for the store; with more of them all are read from the log again",
        "bounds memory; what is beyond is in the log",
    )
    headroom_seconds: float = constant(
        5.0,
        "between two looks at what is idle for a workload that follows it, seconds",
        "short beside the start of a pod; looked at is only who follows what is idle",
    )
    headroom_repeat_seconds: float = constant(
        30.0,
        "until what is idle is said again where it is the same, seconds",
        "well below the age at which a value counts as unknown",
    )
    headroom_settle_seconds: float = constant(
        10.0,
        "until what a cluster shows has come here, beside pods' own grace, seconds",
        "longer than word of a pod takes from a cluster to here",
    )
    headroom_looks_max: int = constant(
        50,
        "workloads that follow what is idle, looked at in one step",
        "bounds one step; the rest is looked at in the next one",
    )

    def history_bounds(self) -> HistoryBounds:
        """Returns the limits of kept decisions."""
        return HistoryBounds(self.history_kept_max, self.history_gone_seconds, self.history_waiting_max)

    def pace(self) -> Pace:
        """Returns how often headroom is reported."""
        return Pace(
            self.headroom_seconds, self.headroom_repeat_seconds, self.headroom_settle_seconds, self.headroom_looks_max
        )

    def rules(self) -> Rules:
        """Returns the numbers that decisions depend on."""
        return Rules(
            capacity_age_max=self.capacity_age_max_seconds,
            bind_quiet=self.bind_quiet_seconds,
            bind_wait_max=self.bind_wait_max_seconds,
            take_back_after=self.take_back_after_seconds,
            missing_after=self.missing_after_seconds,
            lent_wait=self.lent_wait_seconds,
            lent_silence=self.lent_silence_seconds,
            roll_stands=self.roll_stands_seconds,
            hold_min=self.hold_min_seconds,
            hold_max=self.hold_max_seconds,
            hold_not_owned_max=self.hold_not_owned_max_seconds,
            forget_after=self.forget_after_seconds,
            key_kept=self.key_kept_seconds,
            keys_kept_max=self.keys_kept_max,
            answers_bytes_max=self.answers_bytes_max,
            replans_max=self.replans_max,
            looks_max=self.looks_max,
            moves_per_minute=self.moves_per_minute,
            confirm_over_fraction=self.confirm_over_fraction,
            confirm_over_replicas=self.confirm_over_replicas,
            confirmation_kept=self.confirmation_kept_seconds,
            home_after=self.home_after_seconds,
            home_margin=self.home_margin_fraction,
            home_moves_per_minute=self.home_moves_per_minute,
            namespace_bytes_max=self.namespace_bytes_max,
            namespace_workloads_max=self.namespace_workloads_max,
        )
