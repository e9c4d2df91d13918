"""The part of `make audit` that asks nobody: each package is pinned, wanted for a reason, and of a known licence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import audit
import pytest


def test_what_is_installed_is_what_we_say() -> None:
    known = audit.read_toml(audit.LIST)
    assert (
        list(
            audit.find_troubles(
                known, audit.direct_requirements_by_name(), audit.pinned_version_by_name(), audit.installed_by_name()
            )
        )
        == []
    )


def test_what_is_not_as_it_should_be_is_said() -> None:
    """A package that nobody pinned, another version than the pin's, one without a reason, another licence."""
    there, pinned, asked, known = (
        audit.installed_by_name(),
        audit.pinned_version_by_name(),
        audit.direct_requirements_by_name(),
        audit.read_toml(audit.LIST),
    )
    del pinned["yarl"], known["direct"]["redis"]
    pinned["rich"] = "1.0"
    known["licences"]["allowed"].remove("MPL-2.0")
    told = "\n".join(audit.find_troubles(known, asked, pinned, there))
    for words in (
        "redis: depended on without a reason",
        f"yarl {there['yarl'].version}: installed, and no constraint pins it",
        f"rich {there['rich'].version}: installed, pinned to 1.0",
        "hypothesis 6",
    ):
        assert words in told


CLEAN = {"name": "a", "version": "1", "vulns": []}
WANTING = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "a", "skip_reason": "not there"}


@pytest.mark.parametrize(
    ("answer", "code", "questions", "words"),
    [
        pytest.param(CLEAN, 0, 2, "nothing known of", id="all well"),
        pytest.param(WANTING, 1, 2, "b 2: CVE-1, fixed in 3", id="one is known"),
        pytest.param(UNKNOWN, audit.NOT_ASKED, 2, "NOT DONE", id="a service that knows nothing"),
        pytest.param(None, audit.NOT_ASKED, 2, "NOT DONE", id="no service answers"),
    ],
)
def test_it_says_whether_anybody_could_be_asked(
    answer: dict[str, Any] | None,
    code: int,
    questions: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a service that does not answer, or does not know the first package, nothing more is asked."""
    asked: list[tuple[str, int]] = []

    def ask(service: str, packages: Sequence[str], _: Path) -> list[dict[str, Any]]:
        asked.append((service, len(packages)))
        return [answer] * len(packages) if answer is not None else []

    assert audit.check_vulnerabilities(tmp_path, ask) == code
    assert words in capsys.readouterr().out
    assert len(asked) == questions
    if code == audit.NOT_ASKED:
        assert asked == [("pypi", 1), ("osv", 1)]
