"""The errors of requests to a cluster: it does not answer, has another version of the object, or refuses."""

from typing import Literal

UnreachableReason = Literal[
    "credential", "unauthorized", "forbidden", "timeout", "connection", "garbage", "server", "closed", "absent"
]
"""credential: we could not use our credential, so the cluster was not asked. unauthorized: the cluster answered 401."""


class ClusterUnreachable(Exception):
    """Raised if the cluster gave no usable answer. The caller keeps the last known state, whose age then grows."""

    def __init__(self, cluster: str, reason: UnreachableReason, detail: str) -> None:
        super().__init__(f"cluster {cluster} is unreachable ({reason}): {detail}")
        self.cluster = cluster
        self.reason = reason
        self.detail = detail

    @property
    def text_for_callers(self) -> str:
        """Returns the reason without the detail.

        Log the detail instead: it may name a file of ours or the cluster's address.
        """
        return f"cluster {self.cluster} is unreachable ({self.reason})"


class Conflict(Exception):
    """Raised for a 409: the object exists already, or is not at the version that the caller read.

    The caller must read the object again and compare.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class WriteHeldBack(Conflict):
    """Raised if a write was not sent, because its decision may be out of date by now. See Transport.may_write."""

    def __init__(self) -> None:
        super().__init__("WriteHeldBack", "what it was decided on may be out of date: it was not sent")


class AlreadyExists(Conflict):
    """Raised if a create failed because an object of that name exists."""


class Refused(Exception):
    """Raised if the cluster answered and refused: admission, quota, RBAC, an invalid object, a missing namespace."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Forbidden(Refused):
    """Raised for a 403 of the cluster's authorizer: our account lacks a right. The text names cluster and right."""

    def __init__(self, cluster: str, message: str) -> None:
        super().__init__(403, f"Forbidden by cluster {cluster}", message)


class NotFound(Refused):
    """Raised for a 404: the object of a write, or the namespace of a create, does not exist."""


class Expired(ClusterUnreachable):
    """Raised if the server no longer has the version, or the position in a list (410). Only a new list helps.

    It is also raised when the server went back to an earlier state since (504, or a watch without events).
    """


class TooMuch(ClusterUnreachable):
    """Raised if a list is beyond the limit of objects, bytes or time. The detail names the limit."""


class TooLarge(ClusterUnreachable):
    """Raised if an answer has more bytes than are accepted. A list in smaller pages may succeed."""
