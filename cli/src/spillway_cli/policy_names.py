"""Reads the name of a scale policy, in commands that also take the name of a workload."""

from dataclasses import dataclass

from spillway_cli.exits import bad_input_error

KINDS = {
    "hpa": "",
    "horizontalpodautoscaler": "HorizontalPodAutoscaler",
    "horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "so": "ScaledObject",
    "scaledobject": "ScaledObject",
    "scaledobjects": "ScaledObject",
    "scalepolicy": "ScalePolicy",
    "scalepolicies": "ScalePolicy",
}
"""The kind of scale policy for each word of the command line; empty: any kind."""


@dataclass(frozen=True, slots=True)
class PolicyName:
    """The name of a scale policy. kind: empty means any kind. name: the policy's own; empty means all policies."""

    kind: str
    name: str


def parse_policy_name(given: str, second: str = "") -> PolicyName | None:
    """Reads `hpa`, `hpa/NAME` or `hpa NAME`. Returns None for any other text: then it is the name of a workload."""
    word, slash, name = given.partition("/")
    kind = KINDS.get(word.lower())
    if kind is None:
        if second:
            raise bad_input_error(f"{given!r}: expected hpa before the name {second!r}, or one name alone")
        return None
    if slash and (not name or "/" in name or second):
        raise bad_input_error(
            f"{' '.join(filter(None, (given, second)))!r}: expected {word}, {word}/NAME or {word} NAME"
        )
    return PolicyName(kind, name or second)
