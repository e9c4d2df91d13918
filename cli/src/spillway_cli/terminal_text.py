"""Makes foreign text harmless for a terminal: characters that would control it are shown as escapes.

A caller's report or a cluster API's message may contain characters that set a window's title, hide lines or reverse
text. Everything that the command prints as text goes through here.
"""

import re
from typing import Final

_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
"""C0 and C1 controls except tab and new line, and marks that reverse text, separate lines, or have no width."""


def harmless_text(text: str) -> str:
    """Returns the text with an escape such as \\x1b for each character that controls a terminal."""
    return _STEERING.sub(lambda found: _escaped_character(found.group()), text)


def _escaped_character(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def has_terminal_controls(text: str) -> bool:
    """Returns whether a character in the text would control a terminal."""
    return _STEERING.search(text) is not None


def harmless_json(text: str) -> str:
    """Returns JSON with the same meaning. Only its texts have such characters, and \\u009b in a text is one of them."""
    return _STEERING.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
