"""Describes the things that a placement waits for, as texts for users and as codes. Reads older records, too."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from spillway.events import PlacementDecided, PlacementWaits

NO_WAITS: Final = PlacementWaits()


class PlacementWait(NamedTuple):
    """One thing that replicas wait for, in words. figures: details that change with every node, such as free places."""

    what: str
    figures: str = ""


@dataclass(frozen=True, slots=True)
class RolloutWait:
    """The reason why a rollout does not go on.

    text: for users; empty when the rollout waits for nothing.
    cluster: the cluster that must be available before the rollout goes on; empty: none.
    frozen: whether text names the brake that holds the rollout.
    """

    text: str = ""
    cluster: str = ""
    frozen: bool = False


NO_ROLLOUT_WAIT: Final = RolloutWait()


def waits_text(waits: Iterable[PlacementWait]) -> str:
    """Returns a text for users that lists these waits."""
    return "; ".join(f"{what} ({figures})" if figures else what for what, figures in waits)


def encode_waits(room: Sequence[PlacementWait], held: str, rollout: RolloutWait) -> PlacementWaits | None:
    """Returns the codes of a placement's waits, for its record; None if it waits for nothing.

    held: the text about brakes and confirmations.
    """
    if not (room or held or rollout.text):
        return None
    digest = _digest_of_texts(*(wait.what for wait in room), held, rollout.text)
    return PlacementWaits(bool(room), rollout.text, rollout.cluster, rollout.frozen, digest)


def recorded_waits(placement: PlacementDecided | None) -> PlacementWaits:
    """Returns the codes of a placement's waits. Those of older records have no digest: see waits_digest()."""
    if placement is None:
        return NO_WAITS
    return placement.waits or _read_older_waits(placement.waiting_for)


def waits_digest(placement: PlacementDecided) -> str:
    """Returns the digest of the reasons why replicas of a placement wait.

    For a record of an older version, which has no digest, it is computed here. That happens only when two placements
    are compared, which is seldom, and not when a placement is indexed.
    """
    if placement.waits is not None:
        return placement.waits.digest
    return _digest_of_texts(_text_without_parentheses(placement.waiting_for)) if placement.waiting_for else ""


def has_no_waits(placement: PlacementDecided) -> bool:
    return placement.waits is None and not placement.waiting_for


def full_waits_text(placement: PlacementDecided) -> str:
    """Returns one text for users: everything that a placement waits for, its rollout included."""
    return "; ".join(filter(None, (text_without_rollout(placement), recorded_waits(placement).rollout)))


def text_without_rollout(placement: PlacementDecided) -> str:
    """Returns a text for users with the things that replicas wait for, without the waits of the rollout."""
    if placement.waits is not None:
        return placement.waiting_for
    return placement.waiting_for.partition(_ROLLOUT)[0].removesuffix("; ")


def _digest_of_texts(*whats: str) -> str:
    return blake2b("; ".join(filter(None, whats)).encode(), digest_size=8).hexdigest()


# ── Records of versions before 2026-11-28 ───────────────────────────────────────────────────────────────────────────

_HELD: Final = "held: "
_ROLLOUT: Final = "rollout "
_WAITS_FOR: Final = "waits for "
_FROZEN_BY: Final = " is frozen by "


def _read_older_waits(waiting_for: str) -> PlacementWaits:
    """Reads the text of a version that wrote no codes: first the waits for room, then "held: …", then "rollout …"."""
    if not waiting_for:
        return NO_WAITS
    before, begins, rest = waiting_for.partition(_ROLLOUT)
    rollout = begins + rest
    return PlacementWaits(
        room=before.partition(_HELD)[0] != "",
        rollout=rollout,
        rollout_cluster=rollout.rpartition(_WAITS_FOR)[2] if rollout else "",
        rollout_frozen=_FROZEN_BY in rollout,
    )


def _text_without_parentheses(text: str) -> str:
    """Returns a text without parts in parentheses, which may be nested."""
    depth, kept = 0, []
    for character in text:
        depth += character == "("
        if not depth:
            kept.append(character)
        depth -= character == ")" and depth > 0
    return "".join(kept).replace(" ;", ";").removesuffix(" ")
