"""What the bridges know of the log, and what they do not take: words of turns that are over."""

from dataclasses import replace

from spillway.events_lending import NodeLent
from spillway.model import Generation
from vk_bridge.core.log_state import LogState

LOAN = Generation(7, 1)
LENT = NodeLent("own-1", "n1", 7, 1, LOAN, "pool", "own-1.n1", "all", "idle", "Lent", "", (), (), 1, 0, "")


def test_of_a_loan_the_later_word_counts_and_none_of_a_lower_epoch() -> None:
    state = LogState()
    state.apply(LENT)
    state.apply(replace(LENT, epoch=6, sequence=9, loan=Generation(6, 1)))
    assert state.loan("own-1", "n1") == LOAN
    state.apply(replace(LENT, sequence=2, loan=Generation(7, 2)))
    state.apply(replace(LENT, sequence=1))
    assert state.loan("own-1", "n1") == Generation(7, 2)
