"""What can be chosen about a propagator; each field is the variable SPILLWAY_PROPAGATOR_<NAME>."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from spillway.kubernetes.pod_security import BASELINE, LEVELS
from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import setting


@dataclass(frozen=True, slots=True)
class PropagatorSettings(ClusterTurnSettings):
    create_namespaces: bool = setting(True, "whether namespaces that workloads need are created in members")
    namespace_pod_security: Annotated[str, Meta(pattern=f"^({'|'.join(LEVELS)})$")] = setting(
        BASELINE,
        "level of Pod Security that namespaces created in members enforce; any: no label",
    )
    corrections_max: int = setting(3, "times within the window that one object is put right, whatever its versions")
    creations_max: int = setting(10, "times within the window that one version of an object is created")
    window_seconds: float = setting(600.0, "window of these maxima, seconds")
    status_gather_seconds: float = setting(0.2, "seconds that statuses are gathered before they are published")
    hold_said_seconds: float = setting(
        30.0, "seconds that an object is on hold (left as it is until something else happens) before its status says so"
    )
    status_batch: int = setting(
        500, "statuses published at once; shapes likewise, and so many of a cluster's shapes wait for that at the most"
    )
    objects_at_once: int = setting(8, "objects of one cluster that are worked on at the same time")
    objects_at_once_overall: int = setting(256, "the same for all clusters of this instance")
    references_at_once: int = setting(
        8, "things that one template names, or that go along with one workload, asked for at the same time", least=1
    )
    references_max: int = setting(
        500, "things that one template names and that are looked for; what is beyond is taken as there", least=1
    )
    steps_max: int = setting(50, "actions and repeated reads in one go at one object")
    retry_first_seconds: float = setting(1.0, "seconds until what was refused or is not ours is tried again; doubles")
    retry_longest_seconds: float = setting(60.0, "longest of these pauses, seconds")
    missing_retry_longest_seconds: float = setting(
        10.0, "longest pause while ConfigMaps or Secrets are missing, seconds"
    )
    unreachable_first_seconds: float = setting(0.5, "seconds until an unreachable cluster is tried again; doubles")
    unreachable_longest_seconds: float = setting(10.0, "longest of these pauses, seconds")
    log_proven_seconds: float = setting(
        5.0,
        "seconds since everything in the log was known to be read, after which no cluster is written to; below the "
        "log's cluster_session_seconds",
    )
    log_asked_seconds: float = setting(1.5, "seconds between two proofs of that")
    questions_waiting_max: int = setting(1000, "questions about what a cluster has that may wait to be answered")
    answers_batch: int = setting(50, "answers to such a question published at once")
    answer_attempts_max: int = setting(10, "times that an answer is published again while the log cannot be reached")
    shape_age_max_seconds: float = setting(
        3600.0, "seconds until a cluster is asked again what it admits of a template that is placed there"
    )
    shape_retry_first_seconds: float = setting(
        5.0, "the same after it was refused or could not be asked, seconds; doubles"
    )
    shape_retry_longest_seconds: float = setting(300.0, "longest of these pauses, seconds")
    shape_timeout_seconds: float = setting(2.0, "longest that one dry run may take, seconds")
    shape_unused_seconds: float = setting(
        86400.0, "seconds until what a cluster admits of a template that nobody declares any more is forgotten"
    )
    shape_refused_unused_seconds: float = setting(
        30.0, "the same of a template that it did not let in: nobody would find out that it does now, seconds"
    )
    shape_gather_seconds: float = setting(
        0.03, "seconds that answers about templates are gathered while more wait to be asked about in that cluster"
    )
    namespace_missing_seconds: float = setting(
        1.0,
        "seconds that a cluster is believed to lack a namespace that it lacked: templates in it are not asked about",
    )
    shapes_at_once: int = setting(4, "dry runs at the same time in one cluster")
    shapes_waiting_max: int = setting(
        1000, "questions of planners that wait for a dry run in one cluster; more are answered as not asked"
    )
