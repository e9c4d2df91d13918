"""A small repository with a few mutants: each is judged by what really runs, and a run goes on where it was ended."""

import ast
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spillway_mutants import ledger
from spillway_mutants.baseline import run_baseline
from spillway_mutants.catalogue import FOLDER, Mutant
from spillway_mutants.judging import Unjudged, failed_tests, judge_seed_run, judge_test_run
from spillway_mutants.ledger import GOING, KILLED, SEEDS, SURVIVES, TESTS, TIMEOUT, Row
from spillway_mutants.places import differing_expressions
from spillway_mutants.run import FIRST_SEED, OTHER_SEEDS, Asked, Run, choose_mutants, score_text
from spillway_mutants.workbench import Limits, NotRun, Ran, SeedRan, Workbench

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
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its tests need no plugin of pytest, and to import them all takes ten times as long as such a test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
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


def make_mutant(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, ("P1.1",), "It is otherwise.", CORE, old, new, (TEST,))


WRONG = make_mutant("wrong", "max(first", "min(first")
UNSEEN = make_mutant("unseen", "max(first, second)", "max(second, first)")
UNENDING = make_mutant("unending", "waits = True", "waits = False")
ASKED = Asked(TESTS, (), 1, 0, again=False)


def results_by_tests(root: Path, *mutants: Mutant, limits: Limits = LIMITS) -> dict[str, str]:
    book = root.parent / "ledger.tsv"
    run = Run(ASKED, mutants, limits, root, book)
    run.run_stage(TESTS)
    run.confirm_killing_tests()
    return {row.mutant: row.result for row in ledger.read_rows(book).values()}


def test_each_is_judged_by_the_program_with_its_line(repository: Path) -> None:
    """What fails without a mutant notices none, and what cannot be imported is none."""
    broken = make_mutant("broken", "def most", "import none_of_this_name\ndef most")
    assert results_by_tests(repository, WRONG, UNSEEN, broken) == {
        "wrong": KILLED,
        "unseen": SURVIVES,
        "broken": "broken",
    }
    assert (repository / CORE).read_text() == CODE


def test_what_does_not_end_is_noticed(repository: Path) -> None:
    assert results_by_tests(repository, UNENDING, limits=Limits(tests_seconds=5.0)) == {"unending": TIMEOUT}


def test_a_run_goes_on_behind_the_last_whole_line(repository: Path) -> None:
    results_by_tests(repository, WRONG, UNSEEN)
    book = repository.parent / "ledger.tsv"
    whole = book.read_text()
    book.write_text(whole[: whole.index("unseen") + 10])
    again = Run(ASKED, (WRONG, UNSEEN), LIMITS, repository, book)
    assert [one.id for one in again.mutants_to_judge(TESTS)] == ["unseen"]
    again.run_stage(TESTS)
    assert {row.mutant: row.result for row in ledger.read_rows(book).values()} == {"wrong": KILLED, "unseen": SURVIVES}


def test_what_was_judged_on_other_sources_is_judged_again(repository: Path) -> None:
    results_by_tests(repository, WRONG)
    (repository / TEST).write_text(TESTED + "\n\ndef test_one_more():\n    pass\n")
    run = Run(ASKED, (WRONG,), LIMITS, repository, repository.parent / "ledger.tsv")
    assert [one.id for one in run.mutants_to_judge(TESTS)] == ["wrong"]


def test_a_file_that_is_not_what_python_imports_is_said(repository: Path, tmp_path: Path) -> None:
    """Else a mutant would survive whatever the tests are."""
    bench = Workbench(tmp_path / "bench", LIMITS, repository)
    assert bench.why_import_fails(WRONG) == ""
    elsewhere = Mutant("elsewhere", (), "It is elsewhere.", "libs/one/src/json/decoder.py", "a", "b", (TEST,))
    with pytest.raises(NotRun, match="expected"):
        bench.why_import_fails(elsewhere)


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
    assert judge_test_run(ran) == (result, by)


@pytest.mark.parametrize("ran", [Ran(5, "no tests ran"), Ran(4, "usage"), Ran(1, "INTERNALERROR")])
def test_a_run_without_a_failed_test_judges_nothing(ran: Ran) -> None:
    with pytest.raises(Unjudged):
        judge_test_run(ran)


def test_each_failed_test_is_named_once() -> None:
    output = "FAILED a/test_b.py::test_c - assert 1\nFAILED a/test_b.py::test_c - assert 1\nERROR a/test_d.py\n"
    assert failed_tests(output) == ["a/test_b.py::test_c", "a/test_d.py"]


@pytest.mark.parametrize(
    ("ran", "judged"),
    [
        (SeedRan(7, digest="0"), None),
        (SeedRan(7, failures=["too many", "too few"]), (KILLED, "seed 7: too many")),
        (SeedRan(7, ended=False), (TIMEOUT, "seed 7: it does not end")),
    ],
)
def test_what_a_seed_says(ran: SeedRan, judged: tuple[str, str] | None) -> None:
    assert judge_seed_run(ran) == judged


# ── Seeds ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SIMULATED = """
from types import SimpleNamespace

from one_of_mutants.core import most
from spillway_simulation.oracle import Oracle

def run_seed(seed):
    found, oracle = most(seed, 3) if seed > 1 else 3, Oracle()
    while found < 3:
        oracle.note_violation("it is too small")
    failures = [*oracle.violations, *(["it is too large"] if seed == 9 else ())]
    return SimpleNamespace(failures=failures, digest=str(found), records=seed, writes=1)
"""
JUDGED = """
class Oracle:
    def __init__(self):
        self.violations = []

    def note_violation(self, sentence):
        self.violations.append(sentence)
"""
SCRIPTED = "FLEETS = 4\ndef drawn_count_by_kind(script):\n    return {'fleets': int(script == FLEETS)}\n"


@pytest.fixture
def simulated(repository: Path) -> Path:
    """A simulation of one function, with three seeds that it keeps; those from 2 on call it."""
    folder = repository / "lab/simulation/spillway_simulation"
    for path, text in (
        (folder / "__init__.py", ""),
        (folder / "run.py", SIMULATED),
        (folder / "oracle.py", JUDGED),
        (folder / "script.py", SCRIPTED),
        (folder / "seeds.py", "KEPT = {0: '', 1: '', 2: ''}\ndef script_of(seed):\n    return seed\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(FOLDER, repository / "lab/mutants", ignore=shutil.ignore_patterns("mutants", "__pycache__"))
    return repository


@pytest.fixture
def bench(simulated: Path, tmp_path: Path) -> Iterator[Workbench]:
    found = Workbench(tmp_path / "bench", LIMITS, simulated)
    yield found
    found.close()


def test_a_run_of_seeds_ends_with_the_first_that_fails(bench: Workbench) -> None:
    """And that one as soon as something does not hold. Without a mutant all are run."""
    assert [(one.seed, list(one.failures)) for one in bench.simulate_seeds([1, 2, 3], WRONG)] == [
        (1, []),
        (2, ["it is too small"]),
    ]
    assert [one.seed for one in bench.simulate_seeds([8, 9, 10])] == [8, 9, 10]


def test_a_mutant_that_is_more_than_a_function_is_imported(bench: Workbench) -> None:
    """And the next one is put into the functions as they are without it."""
    outside = make_mutant("outside", "def most(first, second):", "def most(second, first, less=min):")
    inside = make_mutant("inside", "return max(first, second)", "return 4")
    assert [one.digest for one in bench.simulate_seeds([7], inside)] == ["4"]
    assert [one.digest for one in bench.simulate_seeds([7, 8], outside)] == ["7", "8"]
    assert [one.digest for one in bench.simulate_seeds([7, 8], UNSEEN)] == ["7", "8"]


def test_a_seed_that_does_not_end_is_ended(simulated: Path, tmp_path: Path) -> None:
    impatient = Workbench(tmp_path / "bench", Limits(seed_cpu_seconds=1), simulated)
    assert [(one.seed, one.ended) for one in impatient.simulate_seeds([1, 7, 8], UNENDING)] == [(1, True), (7, False)]
    impatient.close()


def test_without_a_mutant_seeds_say_which_mutants_they_meet(bench: Workbench, tmp_path: Path) -> None:
    """Those that meet it the most often for what they cost are the first of a mutant; what fails anyway is none."""
    path = tmp_path / "seeds.jsonl"
    pool = bench.seed_pool(3, 2)
    assert pool == [0, 1, 2, 3, 5]
    found = run_baseline(bench, [WRONG], [*pool, 9], "code", path)
    assert (found.failing_seeds, found.choose_seeds("wrong", 10)) == ([9], [2, 5, 0, 1, 3])
    assert [seed for seed in pool if found.is_met_by_seed("wrong", seed)] == [2, 5]
    path.write_text(path.read_text()[:-20])
    assert run_baseline(bench, [WRONG], [*pool, 9], "code", path).failing_seeds == [9]
    assert path.read_text().count("\n") == 7
    later = replace(WRONG, id="later")
    assert run_baseline(bench, [WRONG, later], pool, "code", path).is_met_by_seed("later", 0)
    assert run_baseline(bench, [later], pool, "other code", path).choose_seeds("later", 2) == [2, 5]


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("x = least if a > b else 0", "x = least if a >= b else 0", ("a > b", "a >= b")),
        ("return not (a and b)", "return not a", ("a and b", "a")),
        ("return max(a, b)", "return min(a, b)", ("max(a, b)", "min(a, b)")),
        ("await wait(lambda: all(found(a)))", "await wait(lambda: all(found(b)))", ("a", "b")),
        (
            "return any(a for a in b if a)",
            "return any(a for a in b)",
            ("any((a for a in b if a))", "any((a for a in b))"),
        ),
        ("x = taken.pop() + 1", "x = taken.pop()", None),
        ("x = await a", "x = await b()", ("a", "b()")),
        ("x = (await a) + 1", "x = 1", None),
        ("found.tell(a)", "found.hide(a)", None),
        ("x = 1\ny = 2", "x = 2\ny = 1", None),
        ("if a: f()", "if a: g()", None),
        ("x = 1", "y = 1", None),
    ],
)
def test_both_are_asked_where_one_expression_differs_that_has_a_value(
    old: str, new: str, both: tuple[str, str] | None
) -> None:
    found = differing_expressions(ast.parse(old), ast.parse(new))
    assert (found and tuple(map(ast.unparse, found))) == both


def results_by_seeds(root: Path, *mutants: Mutant, seeds: int, again: bool = False) -> dict[str, tuple[str, str]]:
    book = root.parent / "ledger.tsv"
    Run(Asked(SEEDS, (), 1, seeds, again), mutants, LIMITS, root, book).run_stage(SEEDS)
    return {row.mutant: (row.result, row.by) for row in ledger.read_rows(book).values()}


def test_seeds_that_do_not_meet_a_mutant_count_and_are_not_run(simulated: Path) -> None:
    """Of those that are, the others went another way without being noticed."""
    large = make_mutant("large", "return max(first, second)", "return max(first, second) + 1")
    cannot = replace(WRONG, id="cannot", seeds_cannot="It is not simulated.")
    assert results_by_seeds(simulated, WRONG, UNSEEN, large, cannot, seeds=8) == {
        "wrong": (KILLED, "seed 2: it is too small"),
        "unseen": (SURVIVES, "8 seeds, 0 meet it, 0 go otherwise"),
        "large": (SURVIVES, "8 seeds, 8 meet it, 8 go otherwise"),
    }
    every = OTHER_SEEDS + 3
    meeting = every - 2
    said = f"{every} seeds, {meeting} meet it, {meeting} go otherwise"
    assert results_by_seeds(simulated, large, seeds=every + 1)["large"] == (SURVIVES, said)


def test_fewer_seeds_do_not_stand_for_more(simulated: Path) -> None:
    """Also where the code is another one by now. And a seed that noticed it is run, however few are asked for."""
    large = make_mutant("large", "return max(first, second)", "return max(first, second) + 1")
    far = FIRST_SEED + OTHER_SEEDS - 1
    at_one = make_mutant("at one", "return max(first, second)", f"return 4 if first != {far} else 0")
    new = replace(large, id="new")
    nine = (SURVIVES, "9 seeds, 9 meet it, 9 go otherwise")
    assert results_by_seeds(simulated, large, seeds=9)["large"] == nine
    book = simulated.parent / "ledger.tsv"
    ledger.append_row(Row("at one", SEEDS, KILLED, f"seed {far}: as it was", at_one.change_digest, "0", "abc"), book)
    (simulated / "lab/simulation/spillway_simulation/one_more.py").write_text("")
    asked = Run(Asked(SEEDS, (), 1, 2, again=False), (at_one, large, new), LIMITS, simulated, book)
    assert [one.id for one in asked.mutants_to_judge(SEEDS)] == ["new", "at one"]
    assert results_by_seeds(simulated, at_one, large, seeds=2) == {
        "at one": (KILLED, f"seed {far}: it is too small"),
        "large": nine,
    }
    assert results_by_seeds(simulated, large, seeds=8, again=True)["large"] == nine
    assert results_by_seeds(simulated, large, seeds=10)["large"] == (SURVIVES, "10 seeds, 10 meet it, 10 go otherwise")


def test_a_seed_that_noticed_it_once_and_not_now_is_none_of_those_asked_for(simulated: Path) -> None:
    large = make_mutant("large", "return max(first, second)", "return max(first, second) + 1")
    seed = FIRST_SEED + OTHER_SEEDS - 1
    book = simulated.parent / "ledger.tsv"
    ledger.append_row(Row("large", SEEDS, KILLED, f"seed {seed}: as it was", large.change_digest, "0", "abc"), book)
    assert results_by_seeds(simulated, large, seeds=4)["large"] == (SURVIVES, "4 seeds, 4 meet it, 4 go otherwise")


# ── The ledger ──────────────────────────────────────────────────────────────────────────────────────────────────────


def make_row(name: str, result: str, by: str = "", stage: str = TESTS) -> Row:
    return Row(name, stage, result, by, "0", "0", "abc")


def test_the_last_line_counts_and_a_tidy_ledger_has_it_alone(tmp_path: Path) -> None:
    book = tmp_path / "ledger.tsv"
    for one in (
        make_row("b", SURVIVES),
        make_row("a", KILLED),
        make_row("b", KILLED),
        make_row("gone", KILLED),
        make_row("a", GOING, "", SEEDS),
    ):
        ledger.append_row(one, book)
    before = ledger.read_rows(book)
    assert before["b", TESTS].result == KILLED
    ledger.rewrite_sorted(["a", "b"], book)
    assert [line.split("\t")[0] for line in book.read_text().splitlines()] == ["mutant", "a", "b", "a"]
    assert ledger.read_rows(book) == {place: one for place, one in before.items() if place[0] != "gone"}


def test_a_text_with_blanks_stays_one_line(tmp_path: Path) -> None:
    ledger.append_row(make_row("a", KILLED, "two\nlines\tand a tab"), tmp_path / "ledger.tsv")
    assert ledger.read_rows(tmp_path / "ledger.tsv")["a", TESTS].by == "two lines and a tab"


def test_the_score_leaves_out_what_nothing_can_tell_apart() -> None:
    same = Mutant("same", (), "It is the same.", CORE, "a", "b", (TEST,), equivalent="It is the same.")
    rows = {("wrong", TESTS): make_row("wrong", KILLED, TEST)._replace(change=WRONG.change_digest)}
    assert score_text([WRONG, same], rows).splitlines()[0] == "tests: 1 of 1 that were judged; 2 mutants"


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        ("100 seeds, 7 meet it, 0 go otherwise", ["seeds: 0 of 1 that were judged; 1 mutants"]),
        (
            "30 seeds, 7 meet it, 0 go otherwise",
            ["seeds: 0 of 0 that were judged; 1 mutants", "not noticed yet, by fewer than 100 seeds: 1"],
        ),
    ],
)
def test_whom_few_seeds_do_not_notice_is_not_judged(by: str, lines: list[str]) -> None:
    rows = {("wrong", SEEDS): make_row("wrong", SURVIVES, by, SEEDS)._replace(change=WRONG.change_digest)}
    found = score_text([WRONG], rows).splitlines()
    assert [found[1], *found[3:]] == lines


def test_mutants_are_chosen_by_whole_parts_of_their_names() -> None:
    every = [Mutant(name, ("P4.1",), "", CORE, "", "", ()) for name in ("P4.1-one", "P4.10-two", "M02")]
    assert [one.id for one in choose_mutants(every, ("P4.10",))] == ["P4.10-two"]
    assert [one.id for one in choose_mutants(every[:2], ("P4",))] == ["P4.1-one", "P4.10-two"]
    assert [one.id for one in choose_mutants(every, ("M02",))] == ["M02"]
    assert choose_mutants(every, ()) == every
