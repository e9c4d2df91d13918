"""The spillway command."""

from typing import Final

VERSION: Final = "0.1.0"
"""That of pyproject.toml. To ask the installed package for it takes as long as all else that `--version` does."""
