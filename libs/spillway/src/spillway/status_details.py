"""What the message of a workload's status tells: programs decide by these details, people read the words of them."""

from typing import Final

from spillway.events import STATE_ENDED, STATE_PRESENT, JobEnd, StatusDetails
from spillway.kubernetes.objects import JOB_ENDS, JOB_OVER

NOTHING_TOLD: Final = StatusDetails()

_ON_HOLD: Final = "on hold: "
_CHANGED: Final = "changed in the cluster: "
_STAYS: Final = ", which stays until another template is applied"
_SUCCEEDED: Final = " succeeded"
_WITH_JOBS: Final = (STATE_PRESENT, STATE_ENDED)
"""States of which versions before details began the message with how a Job ended."""


def hold_text(hold: str) -> str:
    """The words for a hold; empty for none."""
    return f"{_ON_HOLD}{hold}" if hold else ""


def changed_text(field: str) -> str:
    """The words for a field that somebody changed in the cluster; empty for none."""
    return f"{_CHANGED}{field}{_STAYS}" if field else ""


def job_text(job: JobEnd | None) -> str:
    """The words for a Job that makes no pods any more; empty while it does."""
    return f"{job.condition}: {job.succeeded}{_SUCCEEDED}" if job is not None else ""


def is_over(job: JobEnd | None) -> bool:
    """Whether the Job's work is over; a suspended one goes on."""
    return job is not None and job.condition in JOB_OVER


def joined(*texts: str) -> str:
    """The parts of a message that say something."""
    return "; ".join(text for text in texts if text)


def without_hold(message: str, details: StatusDetails) -> str:
    """The message without the words for its hold, which stand last."""
    return message.removesuffix(hold_text(details.hold)).removesuffix("; ") if details.hold else message


def details_of(state: str, message: str, details: StatusDetails | None) -> StatusDetails:
    """The details that a status bears; those that the words say in one by a version before details.

    No status without a message has details: there is nothing to tell.
    """
    return details or (_details_of_older(state, message) if message else NOTHING_TOLD)


def _details_of_older(state: str, message: str) -> StatusDetails:
    """Versions before details decided by the words of the message, and wrote them in one form: "job; change; hold".

    It is needed while a newer propagator, planner or command reads what an older propagator or planner said: an owner
    says every status anew, so until all propagators are upgraded (docs/operations.md, Upgrade). It may go in the
    version after the first release.
    """
    before_hold, _, hold = message.partition(_ON_HOLD)
    before_change, _, change = before_hold.partition(_CHANGED)
    job = _job_of_older(before_change) if state in _WITH_JOBS else None
    return StatusDetails(hold, change.partition(_STAYS)[0], job)


def _job_of_older(words: str) -> JobEnd | None:
    condition, _, rest = words.partition(": ")
    number = rest.partition(_SUCCEEDED)[0]
    if condition not in JOB_ENDS:
        return None
    return JobEnd(condition, int(number) if number.isascii() and number.isdigit() else 0)
