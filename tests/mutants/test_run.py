"""A small repository with a few mutants: each is judged by what really runs, and a run goes on where it was ended."""

import subprocess
from pathlib import Path

import pytest

from .spillway_mutants import ledger
from .spillway_mutants.catalogue import Mutant
from .spillway_mutants.judging import Unjudged, failed_tests, judged_by_seeds, judged_by_tests
from .spillway_mutants.ledger import GOING, KILLED, SEEDS, SURVIVES, TESTS, TIMEOUT, Row
from .spillway_mutants.run import Asked, Run, chosen_of, score
from .spillway_mutants.workbench import Limits, NotRun, Ran, Workbench

CORE = "libs/one/src/one_of_mutants/core.py"
TEST = "libs/one/tests/test_core.py"
LIMITS = Limits(tests_seconds=60.0)
CODE = '''
def most(first, second):
    """The larger one."""
    waits = True
    while not waits:
        pass
    return max(first, second)
'''
TESTED = """
from one_of_mutants.core import most

def test_the_larger_one():
    assert most(1, 2) == 2

def test_what_fails_anyway():
    assert most(1, 2) == 3
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name, text in (
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n'),
        (CORE, CODE),
        (CORE.replace("core.py", "__init__.py"), ""),
        (TEST, TESTED),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for asked in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=one", "-c", "user.email=one@one.example", "commit", "-qm", "one"),
    ):
        subprocess.run(["git", *asked], cwd=root, check=True)
    return root


def mutant(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, ("P1.1",), "It is otherwise.", CORE, old, new, (TEST,))


WRONG = mutant("wrong", "max(first", "min(first")
UNSEEN = mutant("unseen", "max(first, second)", "max(second, first)")
UNENDING = mutant("unending", "waits = True", "waits = False")
ASKED = Asked(TESTS, (), 1, 0, again=False)


def judged(root: Path, *mutants: Mutant, limits: Limits = LIMITS) -> dict[str, str]:
    book = root.parent / "ledger.tsv"
    run = Run(ASKED, mutants, limits, root, book)
    run.stage(TESTS)
    run.confirm()
    return {row.mutant: row.result for row in ledger.read(book).values()}


def test_each_is_judged_by_the_program_with_its_line(repository: Path) -> None:
    """What fails without a mutant notices none, and what cannot be imported is none."""
    broken = mutant("broken", "def most", "import none_of_this_name\ndef most")
    assert judged(repository, WRONG, UNSEEN, broken) == {"wrong": KILLED, "unseen": SURVIVES, "broken": "broken"}
    assert (repository / CORE).read_text() == CODE


def test_what_does_not_end_is_noticed(repository: Path) -> None:
    assert judged(repository, UNENDING, limits=Limits(tests_seconds=5.0)) == {"unending": TIMEOUT}


def test_a_run_goes_on_behind_the_last_whole_line(repository: Path) -> None:
    judged(repository, WRONG, UNSEEN)
    book = repository.parent / "ledger.tsv"
    whole = book.read_text()
    book.write_text(whole[: whole.index("unseen") + 10])
    again = Run(ASKED, (WRONG, UNSEEN), LIMITS, repository, book)
    assert [one.id for one in again.todo(TESTS)] == ["unseen"]
    again.stage(TESTS)
    assert {row.mutant: row.result for row in ledger.read(book).values()} == {"wrong": KILLED, "unseen": SURVIVES}


def test_what_was_judged_on_other_sources_is_judged_again(repository: Path) -> None:
    judged(repository, WRONG)
    (repository / TEST).write_text(TESTED + "\n\ndef test_one_more():\n    pass\n")
    run = Run(ASKED, (WRONG,), LIMITS, repository, repository.parent / "ledger.tsv")
    assert [one.id for one in run.todo(TESTS)] == ["wrong"]


def test_a_file_that_is_not_what_python_imports_is_said(repository: Path, tmp_path: Path) -> None:
    """Else a mutant would survive whatever the tests are."""
    bench = Workbench(tmp_path / "bench", LIMITS, repository)
    assert bench.why_broken(WRONG) == ""
    elsewhere = Mutant("elsewhere", (), "It is elsewhere.", "libs/one/src/json/decoder.py", "a", "b", (TEST,))
    with pytest.raises(NotRun, match="expected"):
        bench.why_broken(elsewhere)


# ── What a run says ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ran", "result", "by"),
    [
        (Ran(0, "3 passed"), SURVIVES, ""),
        (Ran(1, "FAILED a/test_b.py::test_c[d e - f] - assert 1"), KILLED, "a/test_b.py::test_c[d e - f]"),
        (Ran(2, "ERROR a/test_b.py - ImportError"), KILLED, "a/test_b.py"),
        (Ran(None, "going\nstill going\n"), TIMEOUT, "still going"),
    ],
)
def test_what_tests_say(ran: Ran, result: str, by: str) -> None:
    assert judged_by_tests(ran) == (result, by)


@pytest.mark.parametrize("ran", [Ran(5, "no tests ran"), Ran(4, "usage"), Ran(1, "INTERNALERROR")])
def test_a_run_without_a_failed_test_judges_nothing(ran: Ran) -> None:
    with pytest.raises(Unjudged):
        judged_by_tests(ran)


def test_each_failed_test_is_named_once() -> None:
    output = "FAILED a/test_b.py::test_c - assert 1\nFAILED a/test_b.py::test_c - assert 1\nERROR a/test_d.py\n"
    assert failed_tests(output) == ["a/test_b.py::test_c", "a/test_d.py"]


@pytest.mark.parametrize(
    ("ran", "done", "result", "by"),
    [
        (Ran(0, "{}"), 10, GOING, "10 seeds"),
        (Ran(0, "{}"), 100, SURVIVES, "100 seeds"),
        (Ran(1, "seed 7 failed: too many\n  replay: …"), 10, KILLED, "seed 7: too many"),
        (Ran(None, ""), 10, TIMEOUT, "a seed that does not end"),
    ],
)
def test_what_seeds_say(ran: Ran, done: int, result: str, by: str) -> None:
    assert judged_by_seeds(ran, done, 100) == (result, by)


def test_a_simulation_that_does_not_run_judges_nothing() -> None:
    with pytest.raises(Unjudged, match="ImportError"):
        judged_by_seeds(Ran(1, "ImportError: no"), 10, 100)


# ── The ledger ──────────────────────────────────────────────────────────────────────────────────────────────────────


def row(name: str, result: str, by: str = "", stage: str = TESTS) -> Row:
    return Row(name, stage, result, by, "0", "0", "abc")


def test_the_last_line_counts_and_a_tidy_ledger_has_it_alone(tmp_path: Path) -> None:
    book = tmp_path / "ledger.tsv"
    for one in (
        row("b", SURVIVES),
        row("a", KILLED),
        row("b", KILLED),
        row("gone", KILLED),
        row("a", GOING, "", SEEDS),
    ):
        ledger.append(one, book)
    before = ledger.read(book)
    assert before["b", TESTS].result == KILLED
    ledger.tidy(["a", "b"], book)
    assert [line.split("\t")[0] for line in book.read_text().splitlines()] == ["mutant", "a", "b", "a"]
    assert ledger.read(book) == {place: one for place, one in before.items() if place[0] != "gone"}


def test_a_text_with_blanks_stays_one_line(tmp_path: Path) -> None:
    ledger.append(row("a", KILLED, "two\nlines\tand a tab"), tmp_path / "ledger.tsv")
    assert ledger.read(tmp_path / "ledger.tsv")["a", TESTS].by == "two lines and a tab"


def test_the_score_leaves_out_what_nothing_can_tell_apart() -> None:
    same = Mutant("same", (), "It is the same.", CORE, "a", "b", (TEST,), equivalent="It is the same.")
    rows = {("wrong", TESTS): row("wrong", KILLED, TEST)._replace(change=WRONG.digest)}
    assert score([WRONG, same], rows).splitlines()[0] == "tests: 1 of 1 that were judged; 2 mutants"


def test_mutants_are_chosen_by_whole_parts_of_their_names() -> None:
    every = [Mutant(name, ("P4.1",), "", CORE, "", "", ()) for name in ("P4.1-one", "P4.10-two", "M02")]
    assert [one.id for one in chosen_of(every, ("P4.10",))] == ["P4.10-two"]
    assert [one.id for one in chosen_of(every[:2], ("P4",))] == ["P4.1-one", "P4.10-two"]
    assert [one.id for one in chosen_of(every, ("M02",))] == ["M02"]
    assert chosen_of(every, ()) == every
