"""Why a cluster cannot be followed: a code, by which programs decide, beside a text, which only people read."""

from enum import IntEnum
from typing import Final, NamedTuple


class TroubleCode(IntEnum):
    """What a trouble says of its cluster. The numbers are those of TroubleCode in events.proto.

    UNREACHABLE: it does not answer, or not as an API server does. NOT_ALLOWED: there is no usable credential, the
    cluster does not accept it, or our account lacks a right. UNWRITABLE: it answers, and no record holds what it has.
    NODES_DOUBTED: it lists far fewer nodes than before, which is not believed yet.
    """

    UNSPECIFIED = 0
    UNREACHABLE = 1
    NOT_ALLOWED = 2
    UNWRITABLE = 3
    NODES_DOUBTED = 4


SIGNS_OF_LOSS: Final = frozenset((TroubleCode.UNREACHABLE, TroubleCode.NODES_DOUBTED))
"""Troubles that may mean that the cluster is gone. After the others it runs on, whatever we can read of it."""

TEXTS_FOR_CALLERS: Final[dict[int, str]] = {
    TroubleCode.UNREACHABLE: "the cluster does not answer",
    TroubleCode.NOT_ALLOWED: "no credential that the cluster accepts, or a right is missing",
    TroubleCode.UNWRITABLE: "no record holds what the cluster has",
    TroubleCode.NODES_DOUBTED: "the cluster lists far fewer nodes than before",
}
"""What everybody may read of a trouble. Its own text may name our files and the cluster's address."""

_NOT_ALLOWED_REASONS: Final = frozenset(("credential", "unauthorized", "forbidden"))
"""Of ClusterUnreachable."""


class Trouble(NamedTuple):
    """text: "what: reason: detail", empty where there is no trouble; the code is UNSPECIFIED then."""

    code: TroubleCode = TroubleCode.UNSPECIFIED
    text: str = ""


NO_TROUBLE: Final = Trouble()


def code_of_reason(reason: str) -> TroubleCode:
    """reason: of a ClusterUnreachable."""
    return TroubleCode.NOT_ALLOWED if reason in _NOT_ALLOWED_REASONS else TroubleCode.UNREACHABLE


def text_for_callers(code: int) -> str:
    """code: of a record, perhaps one of a newer version."""
    return TEXTS_FOR_CALLERS.get(code, "the cluster cannot be followed")


def code_of_record(code: int, text: str) -> int:
    """The code that a record or an answer bears; of one by a version before codes, what its text says.

    A number that this version does not know, of a newer version, stays as it is: it is no sign of loss.
    """
    return code or _code_of_older(text)


def _code_of_older(text: str) -> TroubleCode:
    """Versions before codes decided by the words of the text, and wrote it in one form: "what: reason: detail".

    It is needed while a newer planner reads an older snapshot, which is upgraded last (docs/operations.md, Upgrade).
    """
    if not text:
        return TroubleCode.UNSPECIFIED
    what, _, rest = text.partition(": ")
    words = {what, rest.partition(": ")[0]}
    if words & _NOT_ALLOWED_REASONS:
        return TroubleCode.NOT_ALLOWED
    return TroubleCode.UNWRITABLE if rest.partition(": ")[0] == "unwritable" else TroubleCode.UNREACHABLE
