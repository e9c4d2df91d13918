"""The reasons why a cluster cannot be followed: a code for programs, and a text that only people read."""

from enum import IntEnum
from typing import Final, NamedTuple


class TroubleCode(IntEnum):
    """The kind of a trouble. The numbers are those of TroubleCode in events.proto.

    UNREACHABLE: the cluster does not answer, or not as an API server does.
    NOT_ALLOWED: there is no usable credential, the cluster does not accept it, or our account lacks a right.
    UNWRITABLE: the cluster answers, and no record can hold its data. NODES_DOUBTED: it lists far fewer nodes than
    before, which is not believed yet.
    """

    UNSPECIFIED = 0
    UNREACHABLE = 1
    NOT_ALLOWED = 2
    UNWRITABLE = 3
    NODES_DOUBTED = 4


SIGNS_OF_LOSS: Final = frozenset((TroubleCode.UNREACHABLE, TroubleCode.NODES_DOUBTED))
"""Troubles that may mean that the cluster is gone. With any other trouble the cluster still runs, even if we cannot
read it."""

TEXTS_FOR_CALLERS: Final[dict[int, str]] = {
    TroubleCode.UNREACHABLE: "the cluster does not answer",
    TroubleCode.NOT_ALLOWED: "no credential that the cluster accepts, or a right is missing",
    TroubleCode.UNWRITABLE: "no record holds what the cluster has",
    TroubleCode.NODES_DOUBTED: "the cluster lists far fewer nodes than before",
}
"""The text of a trouble that every caller may read. The trouble's own text may contain file names of ours and the
cluster's address."""

_NOT_ALLOWED_REASONS: Final = frozenset(("credential", "unauthorized", "forbidden"))
"""The reasons of ClusterUnreachable that mean missing access."""


class Trouble(NamedTuple):
    """A trouble. text: "what: reason: detail"; empty without a trouble, and then the code is UNSPECIFIED."""

    code: TroubleCode = TroubleCode.UNSPECIFIED
    text: str = ""


NO_TROUBLE: Final = Trouble()


def code_of_reason(reason: str) -> TroubleCode:
    """Returns the trouble code for a reason of ClusterUnreachable."""
    return TroubleCode.NOT_ALLOWED if reason in _NOT_ALLOWED_REASONS else TroubleCode.UNREACHABLE


def text_for_callers(code: int) -> str:
    """Returns the text of a code that everybody may read. The code is from a record, perhaps of a newer version."""
    return TEXTS_FOR_CALLERS.get(code, "the cluster cannot be followed")


def code_of_record(code: int, text: str) -> int:
    """Returns the trouble code in a record or an answer. If a version without codes wrote it, the text decides.

    A number of a newer version that this version does not know stays as it is: it is no sign of loss.
    """
    return code or _code_of_older_text(text)


def _code_of_older_text(text: str) -> TroubleCode:
    """Returns the trouble code for a text "what: reason: detail" of a version without codes.

    It is needed while a newer planner reads an older snapshot, which is upgraded last (docs/operations.md, Upgrade).
    """
    if not text:
        return TroubleCode.UNSPECIFIED
    what, _, rest = text.partition(": ")
    words = {what, rest.partition(": ")[0]}
    if words & _NOT_ALLOWED_REASONS:
        return TroubleCode.NOT_ALLOWED
    return TroubleCode.UNWRITABLE if rest.partition(": ")[0] == "unwritable" else TroubleCode.UNREACHABLE
