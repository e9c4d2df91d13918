"""The spillway command."""

from typing import Final

VERSION: Final = "0.1.0"
"""The version in pyproject.toml. Asking the installed package takes as long as all other work of `--version`."""
