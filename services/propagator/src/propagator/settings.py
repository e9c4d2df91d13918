"""Settings of the propagator, from SPILLWAY_PROPAGATOR_* in the environment, and its constants."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from propagator.core.status import RetryRules
from spillway.kubernetes.pod_security import BASELINE, LEVELS
from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class PropagatorSettings(ClusterTurnSettings):
    create_namespaces: bool = setting(
        True, "whether the propagator creates the namespaces that workloads need in clusters"
    )
    namespace_pod_security: Annotated[str, Meta(pattern=f"^({'|'.join(LEVELS)})$")] = setting(
        BASELINE,
        "level of Pod Security that namespaces created in clusters enforce; any: they get no label",
    )
    corrections_max: int = constant(
        3,
        "number of times within window_seconds that one object is corrected, whatever its versions",
        "somebody may change an object so often by accident; with more changes two controllers fight over it",
    )
    creations_max: int = constant(
        10,
        "number of times within window_seconds that one version of an object is created",
        "somebody may delete an object so often by mistake; with more deletions it is intended",
    )
    window_seconds: float = constant(
        600.0,
        "seconds of the window for corrections_max and creations_max",
        "the window is long beside one correction, so that a fight is noticed, and short beside a day's changes",
    )
    status_gather_seconds: float = constant(
        0.2,
        "seconds that statuses are collected before they are published",
        "people do not notice the delay, and a rollout becomes few records",
    )
    hold_said_seconds: float = constant(
        30.0,
        "seconds that an object is on hold (left alone until something else happens) before its status tells it",
        "most holds are over sooner, and would only alarm people",
    )
    status_batch: int = constant(
        500,
        "largest number of statuses published together; the same bound holds for shapes, and for the shapes of one "
        "cluster that wait for it",
        "this bounds one publish; the next one follows at once",
    )
    objects_at_once: int = setting(8, "number of objects of one cluster that are worked on at the same time")
    objects_at_once_overall: int = setting(
        256, "number of objects of all clusters of this instance that are worked on at the same time"
    )
    references_at_once: int = constant(
        8,
        "number of objects that one template names, or of dependencies of one workload, that are requested at the "
        "same time",
        "it is the default of objects_at_once; a template names few objects",
    )
    references_max: int = constant(
        500,
        "largest number of objects named by one template that are looked for; further ones are taken as present",
        "a template may name fewer (200), and the number of dependencies is bounded, too",
    )
    steps_max: int = constant(
        50,
        "largest number of actions and repeated reads for one object before others have their turn",
        "an object needs only a few; more of them are a fight, and the next turn reads the object anew",
    )
    retry_first_seconds: float = constant(
        1.0,
        "first pause in seconds before a refused request, or an object of another owner, is tried again; each "
        "further pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    retry_longest_seconds: float = constant(
        60.0,
        "longest pause in seconds before a refused request, or an object of another owner, is tried again",
        "the end of a refusal is noticed within a minute, and a try costs one request",
    )
    missing_retry_longest_seconds: float = constant(
        10.0,
        "longest pause in seconds between two tries while ConfigMaps or Secrets are missing",
        "the person who creates the missing object sees the effect soon, and a try is one read",
    )
    unreachable_first_seconds: float = constant(
        0.5,
        "first pause in seconds before an unreachable cluster is tried again; each further pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    unreachable_longest_seconds: float = constant(
        10.0,
        "longest pause in seconds before an unreachable cluster is tried again",
        "the return of a cluster is noticed within this time, and a try costs one request",
    )
    log_proven_seconds: float = constant(
        5.0,
        "seconds since the last proof that all records of the log were read, after which the propagator writes to "
        "no cluster; less than the log's cluster_session_seconds",
        "it must be less than the log's cluster_session_seconds, which is at least 6",
    )
    log_asked_seconds: float = constant(
        1.5,
        "seconds between two proofs that all records of the log were read",
        "several proofs fit into log_proven_seconds, and each one is a small request",
    )
    questions_waiting_max: int = constant(
        1000,
        "largest number of planners' questions about a cluster's objects that wait for an answer",
        "this bounds memory, and planners repeat their questions",
    )
    answers_batch: int = constant(
        50,
        "largest number of answers to one such question that are published together",
        "this bounds the size of one record; the next one follows at once",
    )
    answer_attempts_max: int = constant(
        10,
        "number of times that an answer is published again while the log cannot be reached",
        "the planner has stopped waiting for the answer long before",
    )
    shape_age_max_seconds: float = constant(
        3600.0,
        "seconds until a cluster is asked again which shape it admits for a template that is placed there",
        "admission policies seldom change, and a refusal at creation is noticed in any case",
    )
    shape_retry_first_seconds: float = constant(
        5.0,
        "first pause in seconds before a dry run that was refused, or that failed, is repeated; each further pause "
        "doubles",
        "the pauses double, so that only the first pause is short",
    )
    shape_retry_longest_seconds: float = constant(
        300.0,
        "longest pause in seconds before a dry run that was refused, or that failed, is repeated",
        "the end of a refusal is noticed within this time, and a try costs one dry run",
    )
    shape_timeout_seconds: float = constant(
        2.0,
        "longest time in seconds that one dry run may take",
        "planners wait for less time; an answer that comes later is requested again",
    )
    shape_unused_seconds: float = constant(
        86400.0,
        "seconds until a cluster's admitted shape is forgotten if no workload declares its template any more",
        "a workload that declares the template again within a day need not wait for a dry run",
    )
    shape_refused_unused_seconds: float = constant(
        30.0,
        "seconds until a cluster's refusal of a template is forgotten if no workload declares the template any more",
        "the time is short, so that a workload that declares the template again gets the cluster's present answer",
    )
    shape_gather_seconds: float = constant(
        0.03,
        "seconds that the answers of dry runs are collected while more dry runs wait in that cluster",
        "the delay is small beside a dry run, and the answers become few records",
    )
    namespace_missing_seconds: float = constant(
        1.0,
        "seconds that a namespace a cluster lacked is taken as still missing; no dry runs for its templates are "
        "made meanwhile",
        "templates come in bursts, and later ones should find a namespace that was created meanwhile",
    )
    shapes_at_once: int = constant(
        4,
        "number of dry runs at the same time in one cluster",
        "this bounds the load on a cluster's admission; most templates are known from earlier dry runs",
    )
    shapes_waiting_max: int = constant(
        1000,
        "largest number of planners' questions that wait for a dry run in one cluster; further ones are not answered",
        "this bounds memory; the planner plans the other templates as declared",
    )
    shapes_hindered_max: int = constant(
        1000,
        "largest number of questions in one cluster about templates that it refused, or that lacked an object there; "
        "further ones are asked after the next search",
        "this bounds memory; four dry runs at a time answer so many within a minute, even if each takes 0.2 s",
    )
    shapes_for_each_free: float = constant(
        1.0,
        "number of these questions of one namespace that may wait for each free place; 1: half of the places",
        "this leaves half of the free places to the next namespace, as requests_for_each_free does for callers",
    )

    def retry_rules(self) -> RetryRules:
        return RetryRules(self.retry_first_seconds, self.retry_longest_seconds, self.missing_retry_longest_seconds)
