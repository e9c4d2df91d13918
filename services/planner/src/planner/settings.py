"""Defines the settings of the planner, from SPILLWAY_PLANNER_* in the environment, and its constants."""

from dataclasses import dataclass

from planner.core.background.headroom import HeadroomPace
from planner.core.knowledge.rules import PlannerRules
from planner.log.projection import HistoryBounds
from spillway.running.standby import StandbySettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class PlannerSettings(StandbySettings):
    capacity_age_max_seconds: float = setting(
        30.0, "greatest age in seconds of a cluster's capacity on which the planner places new replicas", least=1
    )
    bind_quiet_seconds: float = constant(
        2.0,
        "seconds without a new bind after which the planner stops waiting for replicas whose room is possible but "
        "not certain",
        "a scheduler takes less time from one bind to the next",
    )
    bind_wait_max_seconds: float = constant(
        15.0,
        "longest time in seconds that the planner waits for replicas whose room is possible but not certain",
        "it is the default of take_back_after_seconds: a longer wait is no better than a promise of another cluster",
    )
    refuse_after_seconds: float = constant(
        1.0,
        "seconds after which a request without room is refused; it is refused sooner once all clusters have "
        "reported since the request came",
        "a caller waits for the refusal, and healthy clusters report sooner",
    )
    take_back_after_seconds: float = setting(
        15.0, "seconds that a replica may stay unbound before the planner places it in another cluster", least=0
    )
    missing_after_seconds: float = setting(
        60.0,
        "seconds that an unbound replica reserves room while its cluster lacks a Secret, claim or class that its "
        "template names; after them it waits without a reservation",
        least=0,
    )
    lent_wait_seconds: float = setting(
        60.0, "seconds that a workload waits for lent nodes to come back before the planner uses a later tier", least=0
    )
    lent_silence_seconds: float = constant(
        600.0,
        "seconds in which the planner does not wait again for a cluster whose lent nodes did not come back",
        "nodes that did not come back during one wait seldom come back during the next few",
    )
    roll_stands_seconds: float = constant(
        60.0,
        "seconds without progress of an earlier change (a roll, a scale-in) after which a template that asks for "
        "more no longer waits for it",
        "a roll that works makes progress sooner; it must be possible to replace one that does not",
    )
    hold_min_seconds: float = constant(
        15.0,
        "first pause in seconds of a shape in a cluster after a take-back",
        "the pauses double, so that only the first pause is short",
    )
    hold_max_seconds: float = constant(
        300.0,
        "longest pause in seconds of a shape in a cluster after take-backs; each pause doubles",
        "the planner tries a cluster that refuses a shape often enough, and a try costs hardly anything",
    )
    hold_not_owned_max_seconds: float = constant(
        3600.0,
        "longest pause in seconds of a workload in a cluster where an object of another owner has its name or that "
        "of a dependency; the first pause is hold_max_seconds, and each pause doubles",
        "only a person ends this state, and then asks for the workload by name",
    )
    forget_after_seconds: float = constant(
        3600.0,
        "seconds after its deletion until a workload's records become tombstones",
        "no writer or reader lags so far behind; it bounds the cost of deleted workloads",
    )
    key_kept_seconds: float = constant(
        3600.0,
        "seconds that the planner remembers an idempotency key",
        "clients repeat a request with the same key far sooner; keys_kept_max bounds the number of keys",
    )
    keys_kept_max: int = constant(
        32,
        "largest number of idempotency keys that are kept for one workload",
        "nobody has so many requests about one workload under way",
    )
    answers_bytes_max: int = constant(
        256 * 1024,
        "largest size in bytes of the answers that are kept with the idempotency keys of one workload; the oldest "
        "answers go first, and the newest is always kept",
        "ten answers about a thousand clusters fit; the answers are part of each record of the declaration",
    )
    namespace_bytes_max: int = setting(
        64 * 2**20,
        "largest size in bytes of all that one namespace declares (manifests, policies, ConfigMaps, Services) and "
        "of what is kept of its workloads (earlier templates, shapes, answers); a request beyond it is refused",
        least=0,
    )
    namespace_workloads_max: int = setting(
        20_000,
        "largest number of workloads that one namespace may declare; deleted workloads count until they are forgotten",
        least=1,
    )
    replans_max: int = constant(
        50,
        "largest number of waiting workloads that one step tries to place",
        "this bounds one step; the next step, a tenth of a second later, tries the rest",
    )
    round_seconds: float = constant(
        0.25,
        "seconds after which a round leaves further workloads to the next one",
        "requests wait for the round, a workload may take 20 ms, and the next round is a tenth of a second later",
    )
    round_kind_seconds: float = constant(
        0.05,
        "seconds that each kind of work in a round has at least (moves, retries, rollouts, ...), and one workload",
        "no kind of work takes the time of another; the nine kinds take 0.7 s at most",
    )
    looks_max: int = constant(
        1000,
        "number of rooms for waiting shapes that one step computes; the step finishes the cluster it is at",
        "this bounds one step; the next step computes the rest",
    )
    moves_per_minute: float = setting(
        600.0,
        "largest number of replicas a minute that may move without a person's request by name; 0 moves none",
        least=0,
    )
    confirm_over_fraction: float = setting(
        0.1, "share of the fleet's replicas above which such moves need a person's confirmation", least=0, most=1
    )
    confirm_over_replicas: int = constant(
        10,
        "largest number of replicas that may move without a confirmation, however small the fleet is",
        "so few moves are no accident of a fleet, and otherwise a person would be asked all the time",
    )
    confirmation_kept_seconds: float = constant(
        30.0,
        "seconds after the end of its cause until a confirmation is forgotten",
        "a cause that comes and goes returns sooner; a person who confirms later should read the present state",
    )
    shape_wait_seconds: float = constant(
        0.5,
        "seconds that a new template waits for clusters to tell the shape they admit; then it is planned as declared",
        "a caller waits for it; most clusters answer a dry run sooner, and a later answer still counts",
    )
    home_after_seconds: float = setting(
        60.0, "seconds that an earlier tier must have room before overflow goes home to it", least=0
    )
    home_margin_fraction: float = constant(
        0.1,
        "share of a workload's replicas (at least one replica) that must fit at home beside those that go there",
        "a tenth keeps replicas from going to and fro; home_after_seconds decides when they go",
    )
    home_moves_per_minute: float = setting(
        60.0, "largest number of overflowed replicas that go home in any minute; 0 sends none", least=0
    )
    hear_seconds_max: float = constant(
        3.0,
        "longest time in seconds that a planner which takes its turn waits for clusters to report",
        "by default snapshot reports each healthy cluster sooner",
    )
    tick_seconds: float = constant(
        0.1,
        "seconds between two looks at waiting and unbound replicas",
        "nobody notices a tenth of a second, and a look that finds nothing costs nothing",
    )
    asked_again_seconds: float = constant(
        3.0,
        "seconds that later requests of a workload wait for the repetition of one that got no decision",
        "clients pause for less time before they repeat a request",
    )
    requests_waiting_max: int = setting(
        2000, "largest number of requests that wait for a decision; further requests are refused", least=1
    )
    requests_in_group_max: int = constant(
        200,
        "largest number of requests that one transaction decides and writes; a batch is divided by batch_seconds alone",
        "this bounds one step, and so the wait of the next request; larger transactions are no faster",
    )
    scales_in_group_max: int = constant(
        20,
        "largest number of scale policies' decisions that one step declares, after its requests",
        "this bounds how long requests wait behind scale policies; the next step declares the rest",
    )
    failed_pause_seconds: float = constant(
        60.0,
        "seconds without decisions for a workload after a decision about it met a bug of the planner; requests are "
        "still decided",
        "a repetition of the bug costs hardly anything, and its end is noticed within a minute",
    )
    batch_items_max: int = constant(
        500,
        "largest number of Apply and Scale items in one PlanBatch",
        "this bounds one step, for which others wait; a client with more items sends several batches",
    )
    batch_bytes_max: int = constant(
        16 * 2**20,
        "largest number of bytes of declarations that one PlanBatch may write",
        "this bounds one transaction, which is held in memory as a whole; a client sends several batches",
    )
    call_bytes: int = constant(
        64 * 1024,
        "bytes of a declaration that count as one more call in the rate of a caller who has them written",
        "a short request about a large workload costs the log and its readers as much as a long request",
    )
    find_seconds: float = constant(
        6.0,
        "longest time in seconds that an Adopt waits for clusters to report what runs there",
        "healthy clusters report in less time; the call of one person waits for it",
    )
    recover_events_max: int = constant(
        300,
        "largest number of events in one step of a fleet's recovery",
        "this bounds one step; the next step writes the rest",
    )
    watches_max: int = constant(
        200,
        "largest number of watches that are open at the same time",
        "each watch holds at most watch_events_waiting_max changes; both numbers together bound the "
        "memory of all watches",
    )
    watch_events_waiting_max: int = constant(
        10000,
        "largest number of changes that wait for a slow watcher; then its watch is ended",
        "one burst of changes is far smaller, and a client whose watch was ended starts another one",
    )
    history_kept_max: int = setting(200, "largest number of decisions that the store keeps for one workload", least=1)
    history_page_bytes: int = constant(
        2**20,
        "bytes of past decisions after which the answer to a Get ends",
        "an answer is made in one piece, for which other callers wait; clients ask for the next page",
    )
    history_reads_caller_max: int = constant(
        4,
        "number of histories that are read from Redis at the same time for one caller; its further reads wait",
        "this leaves connections to Redis to the next callers",
    )
    history_gone_seconds: float = constant(
        604_800.0,
        "seconds that the store keeps the decisions on a workload that is no longer declared",
        "people may ask for a week what became of a workload; history_kept_max bounds the memory of Redis",
    )
    history_waiting_max: int = constant(
        5000,
        "largest number of decisions that wait for the store; beyond it all decisions are read from the log again",
        "this bounds memory, and further decisions are in the log",
    )
    headroom_seconds: float = constant(
        5.0,
        "seconds between two computations of idle capacity for the workloads that follow it",
        "the time is short beside the start of a pod, and only workloads that follow idle capacity are computed",
    )
    headroom_repeat_seconds: float = constant(
        30.0,
        "seconds until an unchanged idle capacity is reported again",
        "it is well below the age at which a value counts as unknown",
    )
    headroom_settle_seconds: float = constant(
        10.0,
        "seconds, beside the pods' grace, until the planner has received what a cluster shows",
        "a report about a pod takes less time from a cluster to the planner",
    )
    headroom_looks_max: int = constant(
        50,
        "largest number of workloads that follow idle capacity and are computed in one step",
        "this bounds one step; the next step computes the rest",
    )

    def history_bounds(self) -> HistoryBounds:
        """Returns the limits of kept decisions."""
        return HistoryBounds(self.history_kept_max, self.history_gone_seconds, self.history_waiting_max)

    def headroom_pace(self) -> HeadroomPace:
        """Returns how often headroom is reported."""
        return HeadroomPace(
            self.headroom_seconds, self.headroom_repeat_seconds, self.headroom_settle_seconds, self.headroom_looks_max
        )

    def rules(self) -> PlannerRules:
        """Returns the numbers that decisions depend on."""
        return PlannerRules(
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
            round_seconds=self.round_seconds,
            round_kind_seconds=self.round_kind_seconds,
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
