"""Reads YAML from others: only plain values, with limits on the cost of reading. Nothing else reads YAML."""

from typing import Any, ClassVar, Final

import yaml

DEPTH_MAX: Final = 100
"""The deepest nesting of lists and mappings. No document that is read here needs as much."""
NUMBER_CHARACTERS_MAX: Final = 100
"""The most characters of one number. YAML has numbers to the base 60 (1:59:59), and the time to compute one grows with
the square of its length."""
MERGED_MAX: Final = 10_000
"""The most entries of one mapping, with all entries that it merges (<<). Merges of merges double with every line."""
NODES_MAX: Final = 500_000
"""The most values of one document, with its keys and merged entries. Each costs some 8 µs and 200 bytes, but may take
only three bytes in the text, or fewer if merged."""
REPEATED_BYTES_MAX: Final = 900 * 1024
"""The most bytes of texts and keys that aliases repeat, for all documents that are read together. An alias of three
bytes may stand for a long text."""

_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


_SAFE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ValueBudget:
    """The values that may still be read of one or several documents together, and the bytes that aliases may repeat."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._repeated_left = REPEATED_BYTES_MAX

    def take_values(self, values: int = 1) -> None:
        """Takes values from the budget. Raises yaml.YAMLError when the budget has fewer left."""
        self._left -= values
        if self._left < 0:
            raise yaml.YAMLError(f"more than {self._most} values")

    def take_repeated_bytes(self, count: int) -> bool:
        """Takes `count` bytes from the budget if that many are left. Returns whether they were."""
        if count > self._repeated_left:
            return False
        self._repeated_left -= count
        return True


class BoundedLoader(_SAFE):  # type: ignore[misc]
    """Loads YAML within limits. Dates stay text, as Kubernetes reads them. Raises yaml.YAMLError beyond the limits.

    libyaml's composer calls itself in C for every level, so 30,000 brackets would end the process.
    budget: for all its documents together; None: NODES_MAX values. yaml.load_all gives no budget.
    merged_max: the most entries that all its mappings together may merge.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in _SAFE.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str | bytes, budget: ValueBudget | None = None, merged_max: int = NODES_MAX) -> None:
        super().__init__(stream)
        self._depth = self._flattening = self._merged = 0
        self._merged_max = merged_max
        self._budget = ValueBudget(NODES_MAX) if budget is None else budget

    def descend_resolver(self, node: Any, index: Any) -> None:
        """Counts one level and one value. PyYAML calls it before each value, and ascend_resolver after it."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.YAMLError(f"nested deeper than {DEPTH_MAX}")
        self._budget.take_values()

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def flatten_mapping(self, node: Any) -> None:
        """Merges mappings (<<) into a mapping. PyYAML also calls it for each merged mapping, at every merge."""
        self._flattening += 1
        try:
            super().flatten_mapping(node)
        finally:
            self._flattening -= 1
        if self._flattening:
            self._count_merged_entries(len(node.value))
        # A first key from an earlier place in the text was merged. A mapping that is written out may be larger.
        if len(node.value) > MERGED_MAX and node.value[0][0].start_mark.index < node.start_mark.index:
            raise yaml.YAMLError(f"{len(node.value)} entries are merged: expected at most {MERGED_MAX}")

    def _count_merged_entries(self, entries: int) -> None:
        """Counts entries before they are copied. A mapping without entries costs as much as one with one entry."""
        self._merged += max(1, entries)
        if self._merged > self._merged_max:
            raise yaml.YAMLError(f"{self._merged} entries are merged in all: expected at most {self._merged_max}")
        self._budget.take_values(max(1, entries))

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > NUMBER_CHARACTERS_MAX:
            raise yaml.YAMLError(f"a number has {len(node.value)} characters: expected at most {NUMBER_CHARACTERS_MAX}")
        return super().construct_object(node, deep=deep)


def read_yaml(text: str | bytes) -> Any:
    """Returns the one document in a text; None where there is none.

    Raises yaml.YAMLError, or ValueError for bytes that are no text.
    """
    return read_yaml_within_budget(text, ValueBudget(NODES_MAX))


def read_yaml_within_budget(text: str | bytes, budget: ValueBudget, merged_max: int = NODES_MAX) -> Any:
    """Returns the document as read_yaml does. Its values are taken from the budget, also if it cannot be read."""
    try:
        loader = BoundedLoader(text, budget, merged_max)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (OverflowError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error
