"""Which template a cluster is asked about, and when."""

from propagator.core.desired import PartTarget
from propagator.core.manifests import NamedTemplate
from propagator.core.questions import AskRules, ShapeQuestions
from spillway.events import SHAPE_ADMITTED, SHAPE_REFUSED, SHAPE_UNASKED

RULES = AskRules(age_max=100.0, retry_first=5.0, retry_longest=15.0, waiting_max=2)
WEB, DB = PartTarget("own-1", "default", "web"), PartTarget("own-1", "default", "db")


def template(digest: str) -> NamedTemplate:
    return NamedTemplate(digest, "default", "web", {})


def test_what_somebody_waits_for_is_asked_once_and_not_kept() -> None:
    questions = ShapeQuestions(RULES)
    assert questions.ask(template("a"), 0)
    assert questions.ask(template("a"), 0)
    assert questions.take(0) == template("a")
    assert questions.take(0) is None, "it is being asked"
    questions.answered("a", SHAPE_ADMITTED, 1)
    assert len(questions) == 0


def test_more_than_may_wait_are_not_taken() -> None:
    questions = ShapeQuestions(RULES)
    questions.note(WEB, template("placed"), 0)
    assert [questions.ask(template(name), 0) for name in "abc"] == [True, True, False]
    assert questions.ask(template("a"), 0), "it waits already"


def test_what_is_placed_is_asked_again_when_the_answer_grew_old() -> None:
    questions = ShapeQuestions(RULES)
    questions.note(WEB, template("a"), 0)
    assert questions.take(0) == template("a")
    questions.answered("a", SHAPE_ADMITTED, 1)
    assert (questions.take(100), questions.next_due()) == (None, 101)
    assert questions.take(101) == template("a")


def test_who_was_refused_is_asked_after_longer_and_longer_pauses_and_at_once_when_somebody_waits() -> None:
    questions = ShapeQuestions(RULES)
    questions.note(WEB, template("a"), 0)
    now, pauses = 0.0, []
    for state in (SHAPE_REFUSED, SHAPE_UNASKED, SHAPE_UNASKED, SHAPE_UNASKED):
        assert questions.take(now) is not None
        questions.answered("a", state, now)
        pauses.append(questions.next_due() - now)
        now = questions.next_due()
    assert pauses == [5, 10, 15, 15]
    questions.take(now)
    assert questions.ask(template("a"), now)
    assert questions.take(now) is None, "it is being asked"
    questions.answered("a", SHAPE_UNASKED, now)
    assert questions.ask(template("a"), now + 1)
    assert questions.take(now + 1) == template("a")


def test_what_nobody_is_placed_with_any_more_is_dropped() -> None:
    questions = ShapeQuestions(RULES)
    questions.note(WEB, template("a"), 0)
    questions.note(DB, template("a"), 0)
    questions.take(0)
    questions.answered("a", SHAPE_ADMITTED, 0)
    questions.note(WEB, template("b"), 1)
    assert "a" in questions
    questions.note(DB, None, 1)
    assert "a" not in questions
    assert questions.take(1) == template("b")


def test_who_is_placed_upon_an_answer_is_asked_again_only_when_it_grew_old() -> None:
    questions = ShapeQuestions(RULES)
    questions.ask(template("a"), 0)
    questions.take(0)
    questions.answered("a", SHAPE_ADMITTED, 1)
    questions.note(WEB, template("a"), 5)
    assert (questions.take(5), questions.next_due()) == (None, 101)
    assert questions.take(101) == template("a")


def test_who_is_placed_upon_an_answer_that_is_old_or_none_is_asked_at_once() -> None:
    questions = ShapeQuestions(RULES)
    for name, state in {"a": SHAPE_ADMITTED, "b": SHAPE_UNASKED, "c": SHAPE_ADMITTED}.items():
        questions.ask(template(name), 0)
        questions.take(0)
        questions.answered(name, state, 1)
    questions.lost("c", 2)
    questions.note(WEB, template("a"), 102)
    questions.note(DB, template("b"), 102)
    questions.note(PartTarget("own-1", "default", "cache"), template("c"), 102)
    assert [questions.take(102) for _ in "abcd"] == [template("a"), template("b"), template("c"), None]


def test_an_answer_that_is_lost_is_asked_for_at_once_where_a_placement_has_it_and_once_while_it_is_asked() -> None:
    questions = ShapeQuestions(RULES)
    questions.note(WEB, template("a"), 0)
    assert questions.take(0) == template("a")
    questions.lost("a", 1)
    assert questions.take(1) is None
    questions.answered("a", SHAPE_ADMITTED, 1)
    questions.lost("a", 2)
    assert (questions.take(2), questions.take(2)) == (template("a"), None)


def test_of_answers_that_nobody_is_placed_upon_only_the_newest_are_remembered() -> None:
    questions = ShapeQuestions(RULES)
    for name in "abc":
        questions.ask(template(name), 0)
        questions.take(0)
        questions.answered(name, SHAPE_ADMITTED, 1)
    questions.note(WEB, template("a"), 2)
    questions.note(DB, template("b"), 2)
    assert [questions.take(2), questions.take(2)] == [template("a"), None]


def test_what_is_due_stays_in_order_whatever_was_dropped_before() -> None:
    questions = ShapeQuestions(RULES)
    for number in range(100):
        questions.note(WEB, template(f"passing-{number}"), number)
        questions.take(number)
        questions.answered(f"passing-{number}", SHAPE_ADMITTED, number)
    questions.note(DB, template("late"), 150)
    assert questions.take(199) == template("late")
    assert (questions.take(198.9), questions.next_due()) == (None, 199)
    assert questions.take(199) == template("passing-99")
