"""Decides whether this process has read the log recently enough to write to a cluster."""

import asyncio


class LogProof:
    """A proof that the whole log was read up to a moment. It holds for a number of seconds after that moment.

    If a process was frozen, or is cut off from the log, another instance may have its turns. The process notices this
    by the expired proof, because its session at the broker lasts longer than a proof. The clock is the event loop's. It
    goes on while the process is frozen and, with steady_clock.SteadyLoop as in our processes, while the host is
    suspended.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._proven_at = -float("inf")

    def note_log_read_up_to(self, at: float) -> None:
        """Begins a new proof: every record that was in the log at this moment has been read. at: loop time."""
        self._proven_at = max(self._proven_at, at)

    def is_log_read_up_to(self, at: float) -> bool:
        """Returns whether the proof holds and every record that was in the log at this moment has been read."""
        return self.is_valid() and self._proven_at >= at

    def is_valid(self) -> bool:
        """Returns whether the last proof is recent enough."""
        return asyncio.get_running_loop().time() - self._proven_at <= self._seconds
