"""Refuses requests while a workload is being adopted or disowned: Spillway must not change what runs then."""

from planner.core.knowledge.workload import Workload
from spillway.api import RequestError
from spillway.texts import first_names_text


def is_in_transfer(workload: Workload) -> bool:
    """Returns whether the workload is being adopted or disowned. Then no replica moves without a request by name."""
    return workload.declared.disowning or is_adopting(workload)


def is_adopting(workload: Workload) -> bool:
    return any(part.adopting for part in workload.parts.values())


def refuse_in_transfer(known: Workload | None) -> None:
    """Raises RequestError (FAILED_PRECONDITION) while a workload is being adopted or disowned."""
    if known is None or not known.parts:
        return
    name = "/".join(known.workload_key)
    if known.declared.disowning:
        left = first_names_text(known.parts)
        raise RequestError(
            "FAILED_PRECONDITION",
            f"workload {name}: Disowning: clusters {left} still have Spillway's marks on it: try again",
        )
    if is_adopting(known):
        left = first_names_text(part.cluster for part in known.parts.values() if part.adopting)
        raise RequestError(
            "FAILED_PRECONDITION", f"workload {name}: Adopting: it is being taken over in clusters {left}: try again"
        )
