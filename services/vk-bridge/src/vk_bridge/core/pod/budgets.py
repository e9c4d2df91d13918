"""Finds the disruption budgets of a pool's pod, and the disruptions that each allows. NodeLent lists them for each pod.

A pool's tenants can create any number of budgets, each with a selector of up to a megabyte. So a selector is read once,
within bounds for all budgets of a namespace, and is compared once with each set of labels. A budget beyond the bounds
counts like an unreadable one: it may select any pod of its namespace.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, field, json

from spillway.api import RequestError
from spillway.events_lending import Amounts
from spillway.kubernetes.objects import Kind, Meta
from spillway.kubernetes.pod_shape import matches_labels, selector_of
from spillway.kubernetes.scheduling_spec import LabelSelector
from spillway.kubernetes.term_bounds import LABELS_MAX, VALUES_MAX
from spillway.model import Requirement
from vk_bridge.core.node.loan import Manifest

BUDGETS_MAX: Final = 100
"""The most budgets of one namespace whose selectors are read. Kubernetes evicts no pod with more than one budget, so a
namespace has about as many budgets as controllers."""
SELECTORS_BYTES_MAX: Final = 128 * 1024
"""The most bytes of selectors that are read in one namespace."""
LABEL_SETS_KEPT_MAX: Final = 2_000
"""The most sets of labels of one pool for which the selecting budgets are kept."""
LABELS_CHARACTERS_KEPT_MAX: Final = 4 * 1024
"""The most characters of a set of labels that is kept. A longer set is compared again each time."""
ALLOWED_MAX: Final = 2**31 - 1
"""Kubernetes' disruptionsAllowed is an int32. A larger value is reported as this."""


class BudgetSpec(Struct, frozen=True, gc=False):
    selector: Raw = field(default_factory=lambda: Raw(b"null"))


class BudgetStatus(Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0


class DisruptionBudget(Struct, frozen=True, gc=False):
    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


BUDGETS: Final = Kind("policy", "v1", "poddisruptionbudgets", DisruptionBudget)
_SELECTOR: Final[Any] = json.Decoder(LabelSelector | None)


class UnreadableSelector(Exception):
    """Raised for a selector that is invalid in Kubernetes, or has more than LABELS_MAX entries or VALUES_MAX values."""


Requirements = tuple[Requirement, ...]


def read_selector(text: bytes) -> Requirements | None:
    """Returns the requirements of a selector; None if it selects no pod. Raises UnreadableSelector.

    The number of its entries is checked before any entry is read.
    """
    try:
        selector = _SELECTOR.decode(text)
        if selector is None:
            return None
        entries = len(selector.match_labels) + len(selector.match_expressions)
        if entries > LABELS_MAX or sum(len(one.values) for one in selector.match_expressions) > VALUES_MAX:
            raise UnreadableSelector
        return selector_of(selector, "selector").requirements
    except (DecodeError, UnicodeDecodeError, RecursionError, RequestError) as error:
        raise UnreadableSelector from error


@dataclass(slots=True)
class _KnownBudget:
    """One budget.

    text: its selector as JSON. is_read, is_readable: whether the selector was read, and whether it is valid.
    read: its requirements, once it was read; None for a selector that selects nothing.
    """

    name: str
    text: bytes
    allowed: int
    is_read: bool = False
    is_readable: bool = False
    read: Requirements | None = None

    def requirements(self) -> Requirements | None:
        """Reads the selector at the first call. Raises UnreadableSelector."""
        if not self.is_read:
            self.is_read = True
            try:
                self.read = read_selector(self.text)
                self.is_readable = True
            except UnreadableSelector:
                pass
        if not self.is_readable:
            raise UnreadableSelector
        return self.read


@dataclass(frozen=True, slots=True)
class _SortedBudgets:
    """The budgets of a namespace. number: changes with their selectors. readable: by name, with their requirements.

    about_any: the names of the budgets that may select any pod.
    """

    number: int
    readable: tuple[tuple[str, Requirements], ...]
    about_any: frozenset[str]


class _NamespaceBudgets:
    def __init__(self) -> None:
        self.budgets: dict[str, _KnownBudget] = {}
        self.sorted: _SortedBudgets | None = None
        """None if a selector has changed since."""
        self.strictest: Amounts | None = None
        """The budget that allows the fewest disruptions, of those that may select any pod.

        None if that may have changed.
        """


class DisruptionBudgets:
    """The disruption budgets of one pool, as its watch delivers them."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _NamespaceBudgets] = {}
        self._about: dict[tuple[int, frozenset[tuple[str, str]]], tuple[str, ...]] = {}
        self._number = 0

    def replace_budgets(self, budgets: Iterable[DisruptionBudget]) -> None:
        """Replaces all budgets. An unchanged selector is not read again."""
        before, self._namespaces = self._namespaces, {}
        for budget in budgets:
            namespace, name = budget.metadata.namespace, budget.metadata.name
            known = before[namespace].budgets.get(name) if namespace in before else None
            if known is not None:
                self._namespaces.setdefault(namespace, _NamespaceBudgets()).budgets[name] = known
            self.put_budget(budget)

    def put_budget(self, budget: DisruptionBudget) -> None:
        name, text = budget.metadata.name, bytes(budget.spec.selector)
        allowed = min(max(0, budget.status.disruptions_allowed), ALLOWED_MAX)
        namespace = self._namespaces.setdefault(budget.metadata.namespace, _NamespaceBudgets())
        known = namespace.budgets.get(name)
        if known is None or known.text != text:
            namespace.budgets[name] = _KnownBudget(name, text, allowed)
            namespace.sorted = namespace.strictest = None
        elif known.allowed != allowed:
            known.allowed = allowed
            if namespace.sorted is not None and name in namespace.sorted.about_any:
                namespace.strictest = None

    def drop_budget(self, budget: DisruptionBudget) -> None:
        namespace = self._namespaces.get(budget.metadata.namespace)
        if namespace is None or namespace.budgets.pop(budget.metadata.name, None) is None:
            return
        namespace.sorted = namespace.strictest = None
        if not namespace.budgets:
            del self._namespaces[budget.metadata.namespace]

    def budgets_of_pod(self, pod: Manifest) -> Amounts:
        """Returns the budgets that select a pod, in the order of namespace/name, with the disruptions each allows.

        Of the budgets that may select any pod of the namespace only the strictest is returned: there may be thousands,
        and if that one allows a disruption the others do, too.
        """
        where = pod["metadata"]["namespace"]
        namespace = self._namespaces.get(where)
        if namespace is None:
            return ()
        if namespace.sorted is None:
            self._number += 1
            namespace.sorted = _sort_budgets(namespace.budgets.values(), self._number)
        if namespace.strictest is None:
            any_pod = (namespace.budgets[name] for name in namespace.sorted.about_any)
            found = min(any_pod, key=lambda budget: (budget.allowed, budget.name), default=None)
            namespace.strictest = ((f"{where}/{found.name}", found.allowed),) if found is not None else ()
        labels = {key: str(value) for key, value in (pod["metadata"].get("labels") or {}).items()}
        names = self._cached_budget_names(namespace.sorted, labels)
        own = ((f"{where}/{name}", namespace.budgets[name].allowed) for name in names)
        return tuple(sorted((*own, *namespace.strictest)))

    def _cached_budget_names(self, budgets: _SortedBudgets, labels: dict[str, str]) -> tuple[str, ...]:
        """Returns the names of the readable budgets that select pods with these labels."""
        if not budgets.readable:
            return ()
        if sum(len(key) + len(value) for key, value in labels.items()) > LABELS_CHARACTERS_KEPT_MAX:
            return tuple(_matching_budget_names(budgets, labels))
        key = budgets.number, frozenset(labels.items())
        names = self._about.get(key)
        if names is None:
            if len(self._about) >= LABEL_SETS_KEPT_MAX:
                self._about.clear()
            names = self._about[key] = tuple(_matching_budget_names(budgets, labels))
        return names


def _sort_budgets(budgets: Iterable[_KnownBudget], number: int) -> _SortedBudgets:
    """Reads the selectors of a namespace, shortest first, until a bound is reached."""
    bytes_left, entries_left, values_left = SELECTORS_BYTES_MAX, LABELS_MAX, VALUES_MAX
    every = list(budgets)
    readable: dict[str, Requirements] = {}
    none = set[str]()
    for known in nsmallest(BUDGETS_MAX, every, key=lambda budget: (len(budget.text), budget.name)):
        bytes_left -= len(known.text)
        if bytes_left < 0:
            break
        try:
            requirements = known.requirements()
        except UnreadableSelector:
            continue
        if requirements is None:
            none.add(known.name)
            continue
        values = sum(len(one.values) for one in requirements)
        if len(requirements) <= entries_left and values <= values_left:
            entries_left, values_left = entries_left - len(requirements), values_left - values
            readable[known.name] = requirements
    about_any = frozenset(known.name for known in every if known.name not in readable and known.name not in none)
    return _SortedBudgets(number, tuple(sorted(readable.items())), about_any)


def _matching_budget_names(budgets: _SortedBudgets, labels: dict[str, str]) -> Iterator[str]:
    for name, requirements in budgets.readable:
        if matches_labels(requirements, labels):
            yield name
