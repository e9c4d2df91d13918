"""Settings of the propagator, from SPILLWAY_PROPAGATOR_* in the environment, and its constants."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from spillway.kubernetes.pod_security import BASELINE, LEVELS
from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class PropagatorSettings(ClusterTurnSettings):
    create_namespaces: bool = setting(True, "whether namespaces that workloads need are created in members")
    namespace_pod_security: Annotated[str, Meta(pattern=f"^({'|'.join(LEVELS)})$")] = setting(
        BASELINE,
        "level of Pod Security that namespaces created in members enforce; any: no label",
    )
    corrections_max: int = constant(
        3,
        "times within the window that one object is put right, whatever its versions",
        "so often somebody else's change may be an accident; later two controllers fight over the object",
    )
    creations_max: int = constant(
        10,
        "times within the window that one version of an object is created",
        "so often somebody may delete it by mistake; later it is meant",
    )
    window_seconds: float = constant(
        600.0,
        "window of these maxima, seconds",
        "long beside one correction, so that a fight is noticed, short beside a day's changes",
    )
    status_gather_seconds: float = constant(
        0.2,
        "seconds that statuses are gathered before they are published",
        "not noticed by people, and a rollout becomes few records",
    )
    hold_said_seconds: float = constant(
        30.0,
        "seconds that an object is on hold (left as it is until something else happens) before its status says so",
        "most holds are over sooner, and would only alarm",
    )
    status_batch: int = constant(
        500,
        "statuses published at once; shapes likewise, and so many of a cluster's shapes wait for that at the most",
        "bounds one publish; the next follows at once",
    )
    objects_at_once: int = setting(8, "objects of one cluster that are worked on at the same time")
    objects_at_once_overall: int = setting(
        256, "objects of all clusters of this instance that are worked on at the same time"
    )
    references_at_once: int = constant(
        8,
        "things that one template names, or that go along with one workload, asked for at the same time",
        "as objects_at_once by default; a template names few things",
    )
    references_max: int = constant(
        500,
        "things that one template names and that are looked for; what is beyond is taken as there",
        "above what a template may name (200); what goes along is bounded, too",
    )
    steps_max: int = constant(
        50,
        "actions and repeated reads in one go at one object",
        "an object comes to rest in a few; more is a fight, which the next go sees anew",
    )
    retry_first_seconds: float = constant(
        1.0,
        "seconds until what was refused or is not ours is tried again; doubles",
        "the pauses double, so that only the first one is short",
    )
    retry_longest_seconds: float = constant(
        60.0,
        "longest of these pauses, seconds",
        "what ended a refusal is noticed within a minute, and a try costs one request",
    )
    missing_retry_longest_seconds: float = constant(
        10.0,
        "longest pause while ConfigMaps or Secrets are missing, seconds",
        "who made the missing thing sees its effect soon; a try is one read",
    )
    unreachable_first_seconds: float = constant(
        0.5,
        "seconds until an unreachable cluster is tried again; doubles",
        "the pauses double, so that only the first one is short",
    )
    unreachable_longest_seconds: float = constant(
        10.0,
        "longest of these pauses, seconds",
        "a cluster that comes back is noticed within it, and a try costs one request",
    )
    log_proven_seconds: float = constant(
        5.0,
        "seconds since everything in the log was known to be read, after which no cluster is written to; below the "
        "log's cluster_session_seconds",
        "below the log's cluster_session_seconds, which is 6 at the least",
    )
    log_asked_seconds: float = constant(
        1.5,
        "seconds between two proofs of that",
        "several fit into log_proven_seconds, and each is a small request",
    )
    questions_waiting_max: int = constant(
        1000,
        "questions about what a cluster has that may wait to be answered",
        "bounds memory; planners ask again",
    )
    answers_batch: int = constant(
        50,
        "answers to such a question published at once",
        "bounds one record's size; the next follows at once",
    )
    answer_attempts_max: int = constant(
        10,
        "times that an answer is published again while the log cannot be reached",
        "the asker has long given up by then",
    )
    shape_age_max_seconds: float = constant(
        3600.0,
        "seconds until a cluster is asked again what it admits of a template that is placed there",
        "admission policies change seldom, and a refusal at creation is noticed anyway",
    )
    shape_retry_first_seconds: float = constant(
        5.0,
        "the same after it was refused or could not be asked, seconds; doubles",
        "the pauses double, so that only the first one is short",
    )
    shape_retry_longest_seconds: float = constant(
        300.0,
        "longest of these pauses, seconds",
        "what ended a refusal is noticed within it, and a try costs one dry run",
    )
    shape_timeout_seconds: float = constant(
        2.0,
        "longest that one dry run may take, seconds",
        "planners wait for less; an answer that comes later is asked for again",
    )
    shape_unused_seconds: float = constant(
        86400.0,
        "seconds until what a cluster admits of a template that nobody declares any more is forgotten",
        "a day: who declares the template again tomorrow waits for nobody",
    )
    shape_refused_unused_seconds: float = constant(
        30.0,
        "the same of a template that it did not let in: nobody would find out that it does now, seconds",
        "short, so that who declares it again is told what is true now",
    )
    shape_gather_seconds: float = constant(
        0.03,
        "seconds that answers about templates are gathered while more wait to be asked about in that cluster",
        "not noticed beside a dry run, and answers become few records",
    )
    namespace_missing_seconds: float = constant(
        1.0,
        "seconds that a cluster is believed to lack a namespace that it lacked: templates in it are not asked about",
        "templates come in bursts; later ones should see the namespace that was made meanwhile",
    )
    shapes_at_once: int = constant(
        4,
        "dry runs at the same time in one cluster",
        "bounds the load on a cluster's admission; most templates have been asked about before",
    )
    shapes_waiting_max: int = constant(
        1000,
        "questions of planners that wait for a dry run in one cluster; more are answered as not asked",
        "bounds memory; what is beyond is planned as declared",
    )
