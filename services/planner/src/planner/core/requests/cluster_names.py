"""Makes refusals that name the clusters of the fleet to callers that may list them, and to others their number."""

from planner.core.knowledge.state import PlannerState
from spillway.api import RequestError, invalid_argument_error
from spillway.texts import counted_noun, first_names_text


def refusal_naming_clusters(state: PlannerState, code: str, text: str) -> RequestError:
    """Returns a refusal whose text goes on with the first clusters of the fleet.

    text: up to there. Callers that may not list clusters get the number of clusters in their place.
    """
    names = [joined.cluster for joined in state.joined_clusters()]
    count = f"{counted_noun(len(names), 'cluster')}, which list_clusters shows to callers that have this verb"
    shown = first_names_text(names) or "none: none has joined"
    return RequestError(code, f"{text} {shown}", text_without_clusters=f"{text} {count if names else shown}")


def unknown_cluster_error(state: PlannerState, field: str, name: str) -> RequestError:
    """Returns the refusal (INVALID_ARGUMENT) of a field with the name of no cluster of the fleet."""
    known = invalid_argument_error(field, name, "a cluster of the fleet:")
    return refusal_naming_clusters(state, known.code, known.text)
