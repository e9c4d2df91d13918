"""What can be wrong when a cluster is asked: it tells nothing, it has another version, it will not."""

from typing import Literal

UnreachableReason = Literal[
    "credential", "unauthorized", "forbidden", "timeout", "connection", "garbage", "server", "closed", "absent"
]
"""credential: we could not use our credential, so the cluster was not asked. unauthorized: the cluster answered 401."""


class ClusterUnreachable(Exception):
    """The cluster told us nothing: what is known of it stands, and grows old."""

    def __init__(self, cluster: str, reason: UnreachableReason, detail: str) -> None:
        super().__init__(f"cluster {cluster} is unreachable ({reason}): {detail}")
        self.cluster = cluster
        self.reason = reason
        self.detail = detail

    @property
    def text_for_callers(self) -> str:
        """The reason alone. The detail belongs into the log: it may name a file of ours or the cluster's address."""
        return f"cluster {self.cluster} is unreachable ({self.reason})"


class Conflict(Exception):
    """409: the object exists already, or is not the version that the caller saw. Read again and compare."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class WriteHeldBack(Conflict):
    """A write was not sent, since it may be out of date by now: see Transport.may_write."""

    def __init__(self) -> None:
        super().__init__("WriteHeldBack", "what it was decided on may be out of date: it was not sent")


class AlreadyExists(Conflict):
    """Of a create: there is one of that name."""


class Refused(Exception):
    """The cluster answered, and will not do it: admission, quota, RBAC, an invalid object, a missing namespace."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Forbidden(Refused):
    """403 of the cluster's authorizer: our account has no right to it. The text names cluster, verb and resource."""

    def __init__(self, cluster: str, message: str) -> None:
        super().__init__(403, f"Forbidden by cluster {cluster}", message)


class NotFound(Refused):
    """404: the object that a write is for is not there, or the namespace of one that is created."""


class Expired(ClusterUnreachable):
    """The version, or the place in a list, is no longer kept (410), or is of what the server was before it went back to
    an earlier state (504, or a watch that says nothing); only a new list helps."""


class TooMuch(ClusterUnreachable):
    """A list is beyond the bound of objects, bytes or time. The detail names the bound."""


class TooLarge(ClusterUnreachable):
    """An answer of more bytes than are taken in; a list in smaller pages may be none."""
