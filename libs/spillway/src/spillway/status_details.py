"""Details of a workload's status, and their text. Programs decide by the details; people read the text."""

from typing import Final, Protocol

from spillway.events import STATE_ENDED, STATE_PRESENT, JobEnd, StatusDetails
from spillway.kubernetes.objects import JOB_ENDS, JOB_OVER

NOTHING_TOLD: Final = StatusDetails()


class WorkloadStatus(Protocol):
    """A status of a workload in a cluster: WorkloadObserved, or the ClusterStatus of an answer."""

    @property
    def state(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def details(self) -> StatusDetails | None: ...


_ON_HOLD: Final = "on hold: "
_CHANGED: Final = "changed in the cluster: "
_STAYS: Final = ", which stays until another template is applied"
_SUCCEEDED: Final = " succeeded"
_WITH_JOBS: Final = (STATE_PRESENT, STATE_ENDED)
"""States for which older versions put the end of a Job at the start of the message."""


def hold_text(hold: str) -> str:
    """Returns the text of a hold; empty without one."""
    return f"{_ON_HOLD}{hold}" if hold else ""


def changed_field_text(field: str) -> str:
    """Returns the text of a field that somebody changed in the cluster; empty without one."""
    return f"{_CHANGED}{field}{_STAYS}" if field else ""


def job_end_text(job: JobEnd | None) -> str:
    """Returns the text of a Job that makes no more pods; empty for a Job that still makes some."""
    return f"{job.condition}: {job.succeeded}{_SUCCEEDED}" if job is not None else ""


def is_job_over(job: JobEnd | None) -> bool:
    """Returns whether a Job is complete or has failed. A suspended Job is not over."""
    return job is not None and job.condition in JOB_OVER


def join_texts(*texts: str) -> str:
    """Joins the parts of a message that are not empty."""
    return "; ".join(text for text in texts if text)


def message_without_hold(message: str, details: StatusDetails) -> str:
    """Returns the message without the text of its hold, which is its last part."""
    return message.removesuffix(hold_text(details.hold)).removesuffix("; ") if details.hold else message


def text_with_hold(text: str, status: WorkloadStatus | None) -> str:
    """Returns the text, followed by the hold of a status if it has one."""
    hold = hold_text(details_of_status(status).hold)
    return f"{text}, {hold}" if hold else text


def details_of_status(status: WorkloadStatus | None) -> StatusDetails:
    """Returns the details of a status. Reads them from the message if a version without the field wrote the status.

    They are empty without a status, and for a status with neither details nor message.
    """
    if status is None:
        return NOTHING_TOLD
    return status.details or (
        _details_of_older_message(status.state, status.message) if status.message else NOTHING_TOLD
    )


def _details_of_older_message(state: str, message: str) -> StatusDetails:
    """Reads the details from a message that an older version wrote, in the form "job; change; hold".

    A newer propagator, planner or command needs this as long as an older propagator or planner has written statuses.
    A propagator writes the status of every workload again, so it is needed until all propagators are upgraded
    (docs/operations.md, Upgrade). It can be removed in the version after the first release.
    """
    before_hold, _, hold = message.partition(_ON_HOLD)
    before_change, _, change = before_hold.partition(_CHANGED)
    job = _job_end_of_older_message(before_change) if state in _WITH_JOBS else None
    return StatusDetails(hold, change.partition(_STAYS)[0], job)


def _job_end_of_older_message(words: str) -> JobEnd | None:
    condition, _, rest = words.partition(": ")
    number = rest.partition(_SUCCEEDED)[0]
    if condition not in JOB_ENDS:
        return None
    return JobEnd(condition, int(number) if number.isascii() and number.isdigit() else 0)
