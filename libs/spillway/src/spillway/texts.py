"""Parts of texts for users that more than one service needs."""

from __future__ import annotations  # Otherwise a command would import the whole model for one plural.

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.kubernetes.pod_security import Violation
    from spillway.model_basics import ObjectReference


def cut_text(text: str, characters_max: int) -> str:
    """Returns a text from outside, cut to characters_max characters."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def cut_text_to_bytes(text: str, bytes_max: int) -> str:
    """Returns a text from outside, cut at the end of a character to at most bytes_max bytes of UTF-8."""
    if 4 * len(text) <= bytes_max:
        return text
    return text[:bytes_max].encode(errors="replace")[:bytes_max].decode(errors="ignore")


def first_names_text(names: Iterable[str], most: int = 20) -> str:
    """Returns the first `most` names in order, and the number of the others, as text; empty for no names."""
    every = sorted(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def counted_noun(count: int, noun: str = "replica") -> str:
    """Returns a text such as "1 replica" or "2 replicas"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def waiting_text(count: int, whose: str) -> str:
    """Returns a text such as "1 replica of … waits" or "2 replicas of … wait"."""
    return f"{counted_noun(count)} {whose} {'waits' if count == 1 else 'wait'}"


def violation_text(one: Violation, of: str = "") -> str:
    """Returns the text of a field that violates a level of Pod Security. of: the path of the pod in
    its manifest, for example `spec.template.`."""
    return f"{of}{one.field}: {one.value!r:.100}: expected {one.expected}"


def object_name(one: ObjectReference) -> str:
    """Returns the kind, the namespace if there is one, and the name of an object as text."""
    return f"{one.kind} {one.namespace}/{one.name}" if one.namespace else f"{one.kind} {one.name}"
