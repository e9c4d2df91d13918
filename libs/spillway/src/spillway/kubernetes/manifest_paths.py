"""Where in a manifest something is wrong. Pure."""

import re
from typing import Any, Final

TYPES: Final = {
    bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"
}  # fmt: skip
"""In msgspec's words."""


def with_key(value: object, path: str, error: str) -> str:
    """The path of msgspec's error, whose last step may be a key of any name: then with the first that has the type
    which the error says it got.
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
