"""Details of a status: their words for people, and what is made of records from before there were details."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.events import STATE_ENDED, STATE_PRESENT, STATE_REFUSED, JobEnd, StatusDetails
from spillway.kubernetes.objects import JOB_ENDS
from spillway.status_details import (
    changed_field_text,
    details_of_status,
    hold_text,
    is_job_over,
    job_end_text,
    join_texts,
    message_without_hold,
    text_with_hold,
)

FIELD = "spec.template.spec.containers[0].image"
CHANGED = f"changed in the cluster: {FIELD}, which stays until another template is applied"
GONE = "; somebody deleted the Job, and it is not run again: delete and apply it to run it anew"
FIVE = JobEnd("Complete", 5)


@dataclass(frozen=True)
class Told:
    """What a status tells."""

    state: str
    message: str
    details: StatusDetails | None = None


# What the version before details wrote (commit eda47f12).
OLDER = {
    "nothing": (STATE_PRESENT, "", StatusDetails()),
    "complete": (STATE_PRESENT, "Complete: 5 succeeded", StatusDetails(job=FIVE)),
    "failed": (STATE_PRESENT, "Failed: 0 succeeded", StatusDetails(job=JobEnd("Failed", 0))),
    "suspended": (STATE_PRESENT, "Suspended: 2 succeeded", StatusDetails(job=JobEnd("Suspended", 2))),
    "gone": (STATE_ENDED, f"Complete: 5 succeeded{GONE}", StatusDetails(job=FIVE)),
    "gone and on hold": (STATE_ENDED, f"Complete: 5 succeeded{GONE}; on hold: x", StatusDetails("x", job=FIVE)),
    "changed": (STATE_PRESENT, CHANGED, StatusDetails(changed_field=FIELD)),
    "all": (STATE_PRESENT, f"Complete: 5 succeeded; {CHANGED}; on hold: a; b", StatusDetails("a; b", FIELD, FIVE)),
    "refused": (STATE_REFUSED, "Complete: 5 succeeded; on hold: x", StatusDetails("x")),
    "cut short": (STATE_PRESENT, "Complete", StatusDetails(job=JobEnd("Complete", 0))),
    "words of others": (STATE_REFUSED, "quota is used up", StatusDetails()),
}


@pytest.mark.parametrize(("state", "message", "details"), OLDER.values(), ids=OLDER.keys())
def test_the_words_of_a_version_before_details_are_read_as_they_were_then(
    state: str, message: str, details: StatusDetails
) -> None:
    assert details_of_status(Told(state, message)) == details


@pytest.mark.parametrize("state", [STATE_PRESENT, STATE_REFUSED])
def test_details_go_before_the_words_also_where_there_are_none(state: str) -> None:
    told = Told(state, f"Complete: 5 succeeded; {CHANGED}; on hold: x", StatusDetails())
    assert details_of_status(told) == StatusDetails()


NO_WORD_OF_OURS = st.text().filter(
    lambda text: not any(word in text for word in ("on hold: ", "changed in", ", which"))
)


@given(
    hold=NO_WORD_OF_OURS,
    field=NO_WORD_OF_OURS,
    job=st.none() | st.builds(JobEnd, st.sampled_from(JOB_ENDS), st.integers(min_value=0, max_value=2**62)),
)
def test_a_version_before_details_reads_in_the_words_what_the_details_say(
    hold: str, field: str, job: JobEnd | None
) -> None:
    message = join_texts(job_end_text(job), changed_field_text(field), hold_text(hold))
    assert details_of_status(Told(STATE_PRESENT, message)) == StatusDetails(hold, field, job)


@given(note=st.text(min_size=1), hold=st.text(min_size=1))
def test_a_message_without_its_hold_is_what_it_was_before(note: str, hold: str) -> None:
    held = StatusDetails(hold)
    assert message_without_hold(join_texts(note, hold_text(hold)), held) == note
    assert message_without_hold(hold_text(hold), held) == ""
    assert message_without_hold(note, StatusDetails()) == note


def test_details_count_without_a_message() -> None:
    """A status that is too large for a record loses its message alone."""
    assert details_of_status(Told(STATE_ENDED, "", StatusDetails(job=FIVE))) == StatusDetails(job=FIVE)


def test_no_status_tells_of_no_hold() -> None:
    assert details_of_status(None) == StatusDetails()
    assert text_with_hold("not carried out yet", None) == "not carried out yet"


def test_a_suspended_job_goes_on() -> None:
    assert [is_job_over(JobEnd(condition, 1)) for condition in JOB_ENDS] == [True, True, False]
    assert not is_job_over(None)
