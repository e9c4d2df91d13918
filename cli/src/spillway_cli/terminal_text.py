"""Text of others on a person's terminal: what would steer the terminal is shown as an escape, and steers nothing.

A caller may write into a report, and a member's API into a message, what sets a window's title, hides lines or turns
their order around. Everything that the command prints as text goes through here.
"""

import re
from typing import Final

_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
"""C0 and C1 controls but tab and new line; marks that turn the direction of text, part lines, or have no width."""


def harmless(text: str) -> str:
    """The text with \\x1b where it had the character of that number."""
    return _STEERING.sub(lambda found: _escape(found.group()), text)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def steers(text: str) -> bool:
    """Whether something in it would steer a terminal."""
    return _STEERING.search(text) is not None


def harmless_json(text: str) -> str:
    """JSON that says the same: it has such characters in its texts alone, and reads \\u009b as the character."""
    return _STEERING.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
