"""Writes the files that are generated from code. With --check it only prints what differs. `make docs` runs it."""

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import make_acls
import make_asyncapi
import make_dashboards
import make_events_page
import make_metrics_page
import make_modules_page
import make_rbac
import make_readme
import make_slo_rules

ROOT: Final = Path(__file__).parent.parent
PAGES: Final[dict[str, Callable[[], str]]] = {
    "README.md": make_readme.page_text,
    "docs/events.md": make_events_page.page_text,
    "docs/asyncapi.yaml": make_asyncapi.page_text,
    "deploy/kafka/acls.sh": make_acls.page_text,
    "docs/metrics.md": make_metrics_page.page_text,
    "docs/modules.md": make_modules_page.page_text,
    "deploy/observability/slo-rules.yaml": make_slo_rules.page_text,
    **make_dashboards.page_maker_by_path(),
    **make_rbac.page_maker_by_path(),
}


def differences_of_old_pages() -> list[str]:
    """Returns a unified diff for each file whose present text differs from the text that would be written."""
    found = []
    for name, page in PAGES.items():
        there = (ROOT / name).read_text() if (ROOT / name).exists() else ""
        lines = difflib.unified_diff(
            there.splitlines(), page().splitlines(), name, "as it would be written", lineterm=""
        )
        text = "\n".join(lines)
        if text or not there.endswith("\n"):
            found.append(text or f"{name}: no line end")
    return found


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        old = differences_of_old_pages()
        print("\n".join([*old, "old: make docs"] if old else ["all that is generated is current"]))
        return 1 if old else 0
    for name, page in PAGES.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(page() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
