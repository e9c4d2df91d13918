"""Computes how much room there has been without a break for some time. Homing uses it as hysteresis."""

LEVELS_MAX = 64
"""The most sizes of a room whose start time is remembered. A rise beyond them counts from a later time."""


class SteadyRoom:
    """The times since when a room has been at least a certain size, by the sizes that it had.

    Sizes and times rise strictly in the list, as a smaller size has lasted for longer.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[int, float]] = []

    def note_room(self, room: int, now: float) -> None:
        """Records the present room for lasting_room(). If the room became smaller, the times of larger sizes end.

        now: seconds of a steady clock.
        """
        since = now
        while self._levels and self._levels[-1][0] >= room:
            since = self._levels.pop()[1]
        if room > 0 and len(self._levels) < LEVELS_MAX:
            self._levels.append((room, since))

    def lasting_room(self, seconds: float, now: float) -> int:
        """Returns the room that there has been at every moment of the last `seconds`."""
        long_enough = [index for index, (_, since) in enumerate(self._levels) if now - since >= seconds]
        if not long_enough:
            return 0
        del self._levels[: long_enough[-1]]  # Smaller rooms have held as well, and are no longer needed.
        return self._levels[0][0]
