"""Every alert leads to its entry in docs/operations.md, no entry is without an alert, and the page's links lead on."""

import re
from pathlib import Path

import pytest

from spillway.addresses import TOPICS

from .known import all_rules

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text()
HEADINGS = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)


def anchor_of_heading(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


ANCHORS = {anchor_of_heading(heading) for heading in HEADINGS}
ALERTS = [rule for rule in all_rules() if "alert" in rule]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_an_entry(alert: dict[str, dict[str, str]]) -> None:
    page, _, place = alert["annotations"]["runbook"].partition("#")
    assert ROOT / page == PAGE
    assert place in ANCHORS


def test_no_entry_is_left_of_an_alert_that_is_gone() -> None:
    entries = TEXT.partition("## What to do when")[2]
    places = {anchor_of_heading(heading) for heading in re.findall(r"^### (.+)$", entries, re.MULTILINE)}
    assert places == {alert["annotations"]["runbook"].partition("#")[2] for alert in ALERTS}


@pytest.mark.parametrize("page", ["operations.md", "security.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for file, place in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", text):
        target = ROOT / "docs" / (file or page)
        assert target.exists(), file
        if place:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert place in {anchor_of_heading(heading) for heading in headings}, f"{file}#{place}"


def test_what_is_backed_up_is_said_of_each_topic_once() -> None:
    table = TEXT.partition("## Back up")[2].partition("**Copy Kafka")[0]
    named = re.findall(r"`([a-z.-]+)`", table)
    topics = {topic.name.removeprefix("spillway.").removesuffix(".v1") for topic in TOPICS}
    assert sorted(name for name in named if name in topics) == sorted(topics)
