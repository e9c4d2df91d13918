"""How long what did not succeed is left alone: each pause is twice the one before, up to a longest one."""

_DOUBLINGS_MAX = 32
"""More would change nothing, but at some time overflow."""


def doubled_seconds(first: float, longest: float, pauses: int) -> float:
    """The next pause, after so many others."""
    return min(longest, first * 2.0 ** min(pauses, _DOUBLINGS_MAX))


class Setbacks:
    """Of one thing that is tried again and again, by several at a time. now: of one monotonic clock, in seconds."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self.count = 0
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._again_at = -float("inf")

    def note(self, now: float) -> bool:
        """A try failed. Whether this begins a pause: those that were under way together count as one."""
        if self.pause_seconds(now) > 0:
            return False
        self._again_at = now + doubled_seconds(self._first_seconds, self._longest_seconds, self.count)
        self.count += 1
        return True

    def pause_seconds(self, now: float) -> float:
        """How long to wait with the next try; 0: no longer."""
        return max(0.0, self._again_at - now)

    def end(self) -> None:
        """A try succeeded."""
        self.count, self._again_at = 0, -float("inf")
