"""Finds which work of a bridge may change with a record of the log."""

from dataclasses import dataclass

from spillway.addresses import BRAKES, CLUSTERS, LENDING, LENDING_RULES, RECALLS
from spillway.events import Event
from vk_bridge.core.log_state import LendingLogState


@dataclass(frozen=True, slots=True)
class TouchedWork:
    """The work that a record concerns.

    owner: the cluster that the record is about, "" for all.
    node: the owner's node whose next step may have changed, "" for none.
    recalled: whether the record is a recall of that node, or the end of one.
    all_nodes: whether all nodes of the owner are concerned; if owner is "", the nodes of all owners.
    owners: whether the set of owners with work may have changed.
    left: the cluster that left with this record, "" for none. Its virtual nodes are gone.
    """

    owner: str
    node: str = ""
    recalled: bool = False
    all_nodes: bool = False
    owners: bool = False
    left: str = ""


def apply_record(state: LendingLogState, topic: str, key: str, event: Event | None) -> TouchedWork:
    """Applies a record to the state. Returns the work that the record concerns. topic: the name without its version.

    event: None for a tombstone.
    """
    named, _, node = key.partition("/")
    steps_on = state.facts_for_next_step(named, node)
    owner = state.apply_event(event) if event is not None else state.apply_tombstone(topic, key)
    match topic:
        case LENDING.name:
            return TouchedWork(owner, node if steps_on != state.facts_for_next_step(named, node) else "", owners=True)
        case RECALLS.name:
            return TouchedWork(owner, node, recalled=True)
        case LENDING_RULES.name:
            return TouchedWork(owner, all_nodes=True, owners=True)
        case BRAKES.name:
            return TouchedWork("", all_nodes=True)
        case CLUSTERS.name:
            left = "" if key in state.clusters else key
            # The nodes that any owner lent to this cluster come back.
            return TouchedWork("" if left else owner, all_nodes=bool(left), owners=True, left=left)
    return TouchedWork(owner)
