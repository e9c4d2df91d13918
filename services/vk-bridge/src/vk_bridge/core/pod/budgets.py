"""Which disruption budgets a pool's pod is under, and how many pods each lets go: what NodeLent says of each pod."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, field, json

from spillway.api import RequestError
from spillway.events_lending import Amounts
from spillway.kubernetes.objects import Kind, Meta
from spillway.kubernetes.pod_shape import matches_labels, selector_of
from spillway.kubernetes.scheduling_spec import LabelSelector
from vk_bridge.core.node.loan import Manifest


class BudgetSpec(Struct, frozen=True, gc=False):
    selector: Raw = field(default_factory=lambda: Raw(b"null"))


class BudgetStatus(Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0


class Budget(Struct, frozen=True, gc=False):
    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


BUDGETS: Final = Kind("policy", "v1", "poddisruptionbudgets", Budget)
_SELECTOR: Final[Any] = json.Decoder(LabelSelector | None)


def budgets_of(pod: Manifest, budgets: Iterable[Budget]) -> Amounts:
    """By namespace/name; in the order of names."""
    metadata = pod["metadata"]
    labels: dict[str, str] = metadata.get("labels") or {}
    found = (
        (f"{budget.metadata.namespace}/{budget.metadata.name}", max(0, budget.status.disruptions_allowed))
        for budget in budgets
        if budget.metadata.namespace == metadata["namespace"] and _is_about(budget, labels)
    )
    return tuple(sorted(found))


def _is_about(budget: Budget, labels: dict[str, str]) -> bool:
    """An empty selector is about all pods, none about none; one that cannot be read may be about any."""
    try:
        selector = _SELECTOR.decode(budget.spec.selector)
        return selector is not None and matches_labels(selector_of(selector, "selector").requirements, labels)
    except (DecodeError, UnicodeDecodeError, RecursionError, RequestError):
        return True
