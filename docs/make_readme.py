"""The table of services in README.md, from the table of topics. All other lines of README.md stay as they are."""

import re
from pathlib import Path
from typing import Final

from make_events_page import DECIDES, topics_of_service

README: Final = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- services: made by make docs -->", "<!-- end of services -->"
HEADER: Final = "| service | decides | reads of others | emits |\n|---|---|---|---|"
OF_EVERY_SERVICE: Final = ("fleet", "turns.")
"""Topics that say which log this is and whose turn it is; docs/events.md has them."""


def page_text() -> str:
    """README.md with the table as it is now. Raises ValueError when README.md has no place for it."""
    text = README.read_text()
    table = "\n".join((BEGIN, HEADER, *map(_service_row, DECIDES), END))
    made, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: table, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"README.md: {count} places for the table of services between {BEGIN} and {END}; expected one")
    return made.rstrip("\n")


def _service_row(service: str) -> str:
    """A service reads its own topics, too: they are its memory, and no news to a reader of README."""
    read, emitted = topics_of_service(service)
    told = ([name for name in read if name not in emitted], emitted)
    cells = (", ".join(name for name in some if not name.startswith(OF_EVERY_SERVICE)) for some in told)
    return "| " + " | ".join((f"[{service}](services/{service}/README.md)", DECIDES[service], *cells)) + " |"
