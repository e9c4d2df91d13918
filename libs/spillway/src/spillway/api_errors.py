"""How a request is refused."""

from collections.abc import Mapping


class RequestError(Exception):
    """A request that cannot be done. Nothing was changed.

    code: the name of a gRPC status (INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, …).
    The text names the field, the value and what was expected, and is for people. reason: for programs, where the code
    alone does not say what to do; a word of reasons.py, empty where it does. details: to the reason.
    """

    def __init__(self, code: str, text: str, reason: str = "", details: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason
        self.details = dict(details or {})

    def in_words(self, text: str) -> "RequestError":
        """The same refusal, said otherwise."""
        return RequestError(self.code, text, self.reason, self.details)


def invalid(field: str, value: object, expected: str) -> RequestError:
    """An INVALID_ARGUMENT in the one form that all of them have; long values are cut."""
    shown = repr(value)
    return RequestError(
        "INVALID_ARGUMENT", f"{field}: {shown[:120]}{'…' if len(shown) > 120 else ''}: expected {expected}"
    )
