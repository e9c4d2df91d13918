"""Checks that a label's key and value are allowed by Kubernetes."""

import re
from typing import Final

from spillway.api import invalid_argument_error
from spillway.kubernetes.manifest_text import NAME

LABEL_LENGTH_MAX: Final = 63
"""The most characters of a label's value, and of a label's key without its prefix."""
PREFIX_LENGTH_MAX: Final = 253
KEY_LENGTH_MAX: Final = PREFIX_LENGTH_MAX + 1 + LABEL_LENGTH_MAX
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def check_label_key(key: str, where: str) -> None:
    """Raises RequestError for a text that cannot be a label's key."""
    prefix, slash, name = key.rpartition("/")
    if not _is_word(name) or (slash and (len(prefix) > PREFIX_LENGTH_MAX or not NAME.fullmatch(prefix))):
        text = f"a label's key: letters, digits, '-', '_' and '.', at most {LABEL_LENGTH_MAX}, or such behind a "
        raise invalid_argument_error(where, key, text + "domain and '/'")


def check_label_value(value: str, where: str) -> None:
    """Raises RequestError for a text that cannot be a label's value. An empty value is allowed."""
    if value and not _is_word(value):
        text = f"a label's value: letters, digits, '-', '_' and '.', at most {LABEL_LENGTH_MAX}, or none"
        raise invalid_argument_error(where, value, text)


def _is_word(text: str) -> bool:
    return len(text) <= LABEL_LENGTH_MAX and _WORD.fullmatch(text) is not None
