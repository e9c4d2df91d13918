"""Makes the table of services in README.md from the table of topics. All other lines of README.md stay unchanged."""

import re
from pathlib import Path
from typing import Final

from make_events_page import DECIDES, topics_of_service

README: Final = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- services: made by make docs -->", "<!-- end of services -->"
HEADER: Final = "| service | decides | reads of others | emits |\n|---|---|---|---|"
OF_EVERY_SERVICE: Final = ("fleet", "turns.")
"""Topics that every service reads: the fleet's id and the turns. The table leaves them out; docs/events.md has them."""


def page_text() -> str:
    """Returns README.md with the present table. Raises ValueError unless README.md has exactly one place for it."""
    text = README.read_text()
    table = "\n".join((BEGIN, HEADER, *map(_service_row, DECIDES), END))
    made, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: table, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"README.md: {count} places for the table of services between {BEGIN} and {END}; expected one")
    return made.rstrip("\n")


def _service_row(service: str) -> str:
    """Returns the table row of a service.

    A service also reads the topics that it emits, to restore its own state. The row leaves those out of its reads.
    """
    read, emitted = topics_of_service(service)
    told = ([name for name in read if name not in emitted], emitted)
    cells = (", ".join(name for name in some if not name.startswith(OF_EVERY_SERVICE)) for some in told)
    return "| " + " | ".join((f"[{service}](services/{service}/README.md)", DECIDES[service], *cells)) + " |"
