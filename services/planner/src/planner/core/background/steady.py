"""Computes how much room there has been without a break for a while. Homing uses it as hysteresis."""

LEVELS_MAX = 64
"""Sizes of a room whose start time is remembered. A rise beyond them counts from a later time."""


class SteadyRoom:
    """The times since when a room has been at least so large, for each size that it had.

    Sizes and times both rise strictly: a smaller room has held for longer.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[int, float]] = []

    def note_room(self, room: int, now: float) -> None:
        """Records the present room for `lasting_room`: a smaller room ends the time of the larger ones. now: steady
        seconds."""
        since = now
        while self._levels and self._levels[-1][0] >= room:
            since = self._levels.pop()[1]
        if room > 0 and len(self._levels) < LEVELS_MAX:
            self._levels.append((room, since))

    def lasting_room(self, seconds: float, now: float) -> int:
        """Returns the most room that there has been at every moment of the last seconds."""
        long_enough = [index for index, (_, since) in enumerate(self._levels) if now - since >= seconds]
        if not long_enough:
            return 0
        del self._levels[: long_enough[-1]]  # Smaller rooms have held as well, and are no longer needed.
        return self._levels[0][0]
