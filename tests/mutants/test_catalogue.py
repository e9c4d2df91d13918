"""The mutants fit the tree: a line that was changed since is named here, and its mutant is to be written anew."""

import re
from collections import Counter

import pytest

from spillway_mutants.catalogue import ROOT, Mutant, Stale, path_of_test, read_mutants, read_sentences

ALL = read_mutants()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.id)
def test_a_mutant_changes_one_place_and_its_file_still_parses(mutant: Mutant) -> None:
    mutant.mutated_text(ROOT)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.id)
def test_a_mutant_names_tests_that_are_there_and_a_place_in_sources(mutant: Mutant) -> None:
    assert mutant.tests
    assert [test for test in mutant.tests if not (ROOT / path_of_test(test)).exists()] == []
    assert "/src/" in mutant.file


def test_names_are_unique() -> None:
    names = Counter([*(mutant.id for mutant in ALL), *(one.id for one in read_sentences())])
    assert [name for name, times in names.items() if times > 1] == []


def test_no_two_mutants_are_the_same_change() -> None:
    changes = Counter((mutant.file, mutant.old, mutant.new) for mutant in ALL)
    assert [change for change, times in changes.items() if times > 1] == []


def test_each_sentence_that_a_program_can_break_has_a_mutant() -> None:
    """Or says why no line can break it."""
    known = {one.id for one in read_sentences()}
    broken = {name for mutant in ALL for name in mutant.sentences}
    assert broken - known == set()
    assert [one.id for one in read_sentences() if one.id not in broken and not one.out_of_reach] == []


def test_words_about_a_mutant_are_a_sentence() -> None:
    assert [mutant.id for mutant in ALL if not re.fullmatch(r"[A-Z].*\.", mutant.breaks)] == []


def _make_mutant(**changed: object) -> Mutant:
    fields: dict[str, object] = {
        "id": "one",
        "sentences": (),
        "breaks": "It says nothing.",
        "file": "libs/spillway/src/spillway/pauses.py",
        "old": "def doubled_pause_seconds(",
        "new": "def doubled_pause_seconds(*",
        "tests": ("libs/spillway/tests/test_pauses.py",),
    }
    return Mutant(**{**fields, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"old": "no such line"}, "one: old: stands 0 times"),
        ({"old": "seconds"}, "expected once"),
        ({"file": "libs/spillway/src/spillway/none.py"}, "there is none of this name"),
        ({"new": "def ("}, "does not parse"),
        ({"new": "def  doubled_pause_seconds("}, "changes nothing"),
    ],
)
def test_what_does_not_fit_is_named_with_what_was_expected(changed: dict[str, str], said: str) -> None:
    with pytest.raises(Stale, match=said):
        _make_mutant(**changed).mutated_text(ROOT)


def test_a_digest_is_of_the_change_and_its_tests_alone() -> None:
    """Else every better word would cost a run."""
    assert (
        _make_mutant().change_digest
        == _make_mutant(breaks="It says more.", equivalent="It is.", sentences=("P1.1",)).change_digest
    )
    assert (
        len(
            {
                _make_mutant().change_digest,
                _make_mutant(new="def doubled(").change_digest,
                _make_mutant(tests=()).change_digest,
            }
        )
        == 3
    )


def test_a_module_is_named_as_python_imports_it() -> None:
    assert (_make_mutant().source_folder, _make_mutant().module_name) == ("libs/spillway/src", "spillway.pauses")
