"""The fleet that a caller means and the fleet that answers. Both sides compare them: no call changes another fleet."""

from dataclasses import dataclass, field
from typing import Any, Final

from spillway.api_errors import RequestError

FLEET_KEY: Final = "spillway-fleet"
"""In a call's metadata: the id of the fleet that the caller means. In a trailer: the id of the fleet that answers."""


def fleet_in_metadata(metadata: Any) -> str:
    """Returns the fleet id in a call's metadata or trailer; empty where there is none."""
    return str(dict(metadata or ()).get(FLEET_KEY, ""))


def refuse_other_fleet(who: str, fleet: str, meant: str, where: str = "") -> None:
    """Raises RequestError if both fleets are known and differ. where: the endpoint, if the client checks."""
    if fleet and meant and fleet != meant:
        text = f"this {who} is of fleet {fleet}, and {meant} was meant: nothing was done"
        raise RequestError("FAILED_PRECONDITION", f"{where}: {text}" if where else text)


@dataclass(slots=True)
class Fleets:
    """The fleets that a client has met.

    who: the service that it calls. meant: the fleet that the caller means; empty: any.
    answered: the fleet that answered last. is_other: True if it is not the fleet that was meant.
    changed: for each fleet in which a call changed something, one endpoint.
    """

    who: str
    meant: str
    answered: str = ""
    is_other: bool = False
    changed: dict[str, str] = field(default_factory=dict)

    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((FLEET_KEY, self.meant),) if self.meant else ()

    def note_answer(self, endpoint: str, trailer: Any) -> None:
        """Stores the fleet id of an answer. Raises RequestError if the caller meant another fleet."""
        self.answered = fleet_in_metadata(trailer) or self.answered
        self.is_other = bool(self.meant) and self.answered not in ("", self.meant)
        refuse_other_fleet(self.who, self.answered, self.meant, endpoint)

    def note_change(self, endpoint: str, trailer: Any) -> None:
        if fleet := fleet_in_metadata(trailer):
            self.changed[fleet] = endpoint
