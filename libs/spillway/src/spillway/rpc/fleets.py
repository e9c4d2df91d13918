"""Which fleet a call means, and which one answers: on both sides of a call, so that nobody changes another one's."""

from dataclasses import dataclass, field
from typing import Any, Final

from spillway.api import RequestError

FLEET_KEY: Final = "spillway-fleet"
"""In a call's metadata the id of the fleet that the caller means, in a trailer that of the fleet that answers."""


def fleet_in(metadata: Any) -> str:
    """Of a call's metadata or a trailer; empty: any, or not told."""
    return str(dict(metadata or ()).get(FLEET_KEY, ""))


def refuse_other(who: str, fleet: str, meant: str, where: str = "") -> None:
    """RequestError where two fleets are named and differ. where: the endpoint, for who called it."""
    if fleet and meant and fleet != meant:
        text = f"this {who} is of fleet {fleet}, and {meant} was meant: nothing was done"
        raise RequestError("FAILED_PRECONDITION", f"{where}: {text}" if where else text)


@dataclass(slots=True)
class Fleets:
    """What a client knows of them. who: the service that it calls. meant: the fleet that it is to be of; empty: any.

    answered: the last that told its id; is_other: it is not the meant one. changed: those in which calls have changed
    something, and an endpoint of each.
    """

    who: str
    meant: str
    answered: str = ""
    is_other: bool = False
    changed: dict[str, str] = field(default_factory=dict)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((FLEET_KEY, self.meant),) if self.meant else ()

    def hear(self, endpoint: str, trailer: Any) -> None:
        """RequestError where another one than the meant one answers."""
        self.answered = fleet_in(trailer) or self.answered
        self.is_other = bool(self.meant) and self.answered not in ("", self.meant)
        refuse_other(self.who, self.answered, self.meant, endpoint)

    def note_change(self, endpoint: str, trailer: Any) -> None:
        if fleet := fleet_in(trailer):
            self.changed[fleet] = endpoint
