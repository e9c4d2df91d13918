"""Whether what this process knows of the log is fresh enough to write to a cluster."""

import asyncio


class LogProof:
    """Holds for so many seconds after a moment up to which everything in the log is known to be read.

    A process that is cut off from the log, or that was frozen, finds by it that others may have taken its turns: its
    session ran out later than this. The clock is the loop's, which goes on while the process stands still, and in a
    process of ours (steady_clock.SteadyLoop) while its host is suspended.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._proven_at = -float("inf")

    def proven(self, at: float) -> None:
        """Everything that was in the log at this moment has been read."""
        self._proven_at = max(self._proven_at, at)

    def covers(self, at: float) -> bool:
        """Whether everything that was in the log at this moment has been read, and the proof holds."""
        return self.holds() and self._proven_at >= at

    def holds(self) -> bool:
        return asyncio.get_running_loop().time() - self._proven_at <= self._seconds
