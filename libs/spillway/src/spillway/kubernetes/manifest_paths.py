"""Finds the path of a mistake in a manifest. Pure."""

import re
from typing import Any, Final

TYPES: Final = {
    bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"
}  # fmt: skip
"""The names that msgspec's errors use for Python types."""


def path_with_real_key(value: object, path: str, error: str) -> str:
    """Returns the path of msgspec's error. If its last step is a placeholder for any key, a real key replaces it.

    The real key is the first one whose value has the type that the error names.
    """
    whole, _, rest = path.partition("[...]")
    if whole == path or rest:
        return path
    found: Any = value
    for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", whole):
        found = found[int(index)] if index else found[name]
    got = error.rpartition("got `")[2].rstrip("`")
    key = next((key for key, inner in found.items() if TYPES.get(type(inner)) == got), None)
    if key is None:
        return path
    return f"{whole}.{key}" if isinstance(key, str) and key.isidentifier() else f"{whole}[{key}]"
