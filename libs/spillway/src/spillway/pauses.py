"""Pauses after failures: each is twice the one before, up to a longest one."""

_DOUBLINGS_MAX = 32
"""The most doublings of a pause. More would change nothing and would overflow at some point."""


def doubled_pause_seconds(first: float, longest: float, pauses: int) -> float:
    """Returns the length of the next pause, after `pauses` others."""
    return min(longest, first * 2.0 ** min(pauses, _DOUBLINGS_MAX))


class Setbacks:
    """The failures of one action that several tasks may try at a time. now: seconds of one monotonic clock."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self.count = 0
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._again_at = -float("inf")

    def note_failure(self, now: float) -> bool:
        """Counts a failed try, begins a pause and returns True. During a pause it changes nothing and returns False."""
        if self.pause_seconds(now) > 0:
            return False
        self._again_at = now + doubled_pause_seconds(self._first_seconds, self._longest_seconds, self.count)
        self.count += 1
        return True

    def pause_seconds(self, now: float) -> float:
        """Returns the seconds to wait before the next try; 0 if there is no pause now."""
        return max(0.0, self._again_at - now)

    def note_success(self) -> None:
        """Ends the pause and resets the count, because a try succeeded."""
        self.count, self._again_at = 0, -float("inf")
