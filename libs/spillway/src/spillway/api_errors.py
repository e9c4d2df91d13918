"""The error with which a request is refused."""

from collections.abc import Callable, Mapping


class RequestError(Exception):
    """Raised if a request is refused. Nothing was changed.

    code: the name of a gRPC status (INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, …).
    text: a text for people, with the field, its value and the expected value.
    reason: a constant of reasons.py, for programs; empty if the code is enough to decide what to do.
    details: further values for the reason.
    text_without_clusters: the text for callers that may not list clusters, if `text` names clusters of the fleet.
    """

    def __init__(
        self,
        code: str,
        text: str,
        reason: str = "",
        details: Mapping[str, str] | None = None,
        text_without_clusters: str = "",
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason
        self.details = dict(details or {})
        self.text_without_clusters = text_without_clusters or text

    def with_text(self, text: str) -> "RequestError":
        """Returns the same refusal with another text."""
        return RequestError(self.code, text, self.reason, self.details)

    def with_words(self, change: Callable[[str], str]) -> "RequestError":
        """Returns the same refusal with its texts changed by a function."""
        return RequestError(self.code, change(self.text), self.reason, self.details, change(self.text_without_clusters))


def invalid_argument_error(field: str, value: object, expected: str) -> RequestError:
    """Returns an INVALID_ARGUMENT error with the usual text. The value is cut to 120 characters."""
    shown = repr(value)
    return RequestError(
        "INVALID_ARGUMENT", f"{field}: {shown[:120]}{'…' if len(shown) > 120 else ''}: expected {expected}"
    )
