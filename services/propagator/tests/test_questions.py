"""Which template a cluster is asked about, and when."""

from propagator.core.desired import PartTarget
from propagator.core.manifests import NamedTemplate
from propagator.core.shape_questions import AskRules, ShapeQuestions
from spillway.events import SHAPE_ADMITTED, SHAPE_REFUSED, SHAPE_UNASKED

RULES = AskRules(age_max=100.0, retry_first=5.0, retry_longest=15.0, waiting_max=2)
WEB, DB = PartTarget("own-1", "default", "web"), PartTarget("own-1", "default", "db")


def named_template(digest: str) -> NamedTemplate:
    return NamedTemplate(digest, "default", "web", {})


def test_what_somebody_waits_for_is_asked_once_and_not_kept() -> None:
    questions = ShapeQuestions(RULES)
    assert questions.add_planner_question(named_template("a"), 0)
    assert questions.add_planner_question(named_template("a"), 0)
    assert questions.take_due_template(0) == named_template("a")
    assert questions.take_due_template(0) is None, "it is being asked"
    questions.note_answer("a", SHAPE_ADMITTED, 1)
    assert len(questions) == 0


def test_more_than_may_wait_are_not_taken() -> None:
    questions = ShapeQuestions(RULES)
    questions.set_target_template(WEB, named_template("placed"), 0)
    assert [questions.add_planner_question(named_template(name), 0) for name in "abc"] == [True, True, False]
    assert questions.add_planner_question(named_template("a"), 0), "it waits already"


def test_what_is_placed_is_asked_again_when_the_answer_grew_old() -> None:
    questions = ShapeQuestions(RULES)
    questions.set_target_template(WEB, named_template("a"), 0)
    assert questions.take_due_template(0) == named_template("a")
    questions.note_answer("a", SHAPE_ADMITTED, 1)
    assert (questions.take_due_template(100), questions.next_due_at()) == (None, 101)
    assert questions.take_due_template(101) == named_template("a")


def test_who_was_refused_is_asked_after_longer_and_longer_pauses_and_at_once_when_somebody_waits() -> None:
    questions = ShapeQuestions(RULES)
    questions.set_target_template(WEB, named_template("a"), 0)
    now, pauses = 0.0, []
    for state in (SHAPE_REFUSED, SHAPE_UNASKED, SHAPE_UNASKED, SHAPE_UNASKED):
        assert questions.take_due_template(now) is not None
        questions.note_answer("a", state, now)
        pauses.append(questions.next_due_at() - now)
        now = questions.next_due_at()
    assert pauses == [5, 10, 15, 15]
    questions.take_due_template(now)
    assert questions.add_planner_question(named_template("a"), now)
    assert questions.take_due_template(now) is None, "it is being asked"
    questions.note_answer("a", SHAPE_UNASKED, now)
    assert questions.add_planner_question(named_template("a"), now + 1)
    assert questions.take_due_template(now + 1) == named_template("a")


def test_what_nobody_is_placed_with_any_more_is_dropped() -> None:
    questions = ShapeQuestions(RULES)
    questions.set_target_template(WEB, named_template("a"), 0)
    questions.set_target_template(DB, named_template("a"), 0)
    questions.take_due_template(0)
    questions.note_answer("a", SHAPE_ADMITTED, 0)
    questions.set_target_template(WEB, named_template("b"), 1)
    assert "a" in questions
    questions.set_target_template(DB, None, 1)
    assert "a" not in questions
    assert questions.take_due_template(1) == named_template("b")


def test_who_is_placed_upon_an_answer_is_asked_again_only_when_it_grew_old() -> None:
    questions = ShapeQuestions(RULES)
    questions.add_planner_question(named_template("a"), 0)
    questions.take_due_template(0)
    questions.note_answer("a", SHAPE_ADMITTED, 1)
    questions.set_target_template(WEB, named_template("a"), 5)
    assert (questions.take_due_template(5), questions.next_due_at()) == (None, 101)
    assert questions.take_due_template(101) == named_template("a")


def test_who_is_placed_upon_an_answer_that_is_old_or_none_is_asked_at_once() -> None:
    questions = ShapeQuestions(RULES)
    for name, state in {"a": SHAPE_ADMITTED, "b": SHAPE_UNASKED, "c": SHAPE_ADMITTED}.items():
        questions.add_planner_question(named_template(name), 0)
        questions.take_due_template(0)
        questions.note_answer(name, state, 1)
    questions.note_answer_lost("c", 2)
    questions.set_target_template(WEB, named_template("a"), 102)
    questions.set_target_template(DB, named_template("b"), 102)
    questions.set_target_template(PartTarget("own-1", "default", "cache"), named_template("c"), 102)
    assert [questions.take_due_template(102) for _ in "abcd"] == [
        named_template("a"),
        named_template("b"),
        named_template("c"),
        None,
    ]


def test_an_answer_that_is_lost_is_asked_for_at_once_where_a_placement_has_it_and_once_while_it_is_asked() -> None:
    questions = ShapeQuestions(RULES)
    questions.set_target_template(WEB, named_template("a"), 0)
    assert questions.take_due_template(0) == named_template("a")
    questions.note_answer_lost("a", 1)
    assert questions.take_due_template(1) is None
    questions.note_answer("a", SHAPE_ADMITTED, 1)
    questions.note_answer_lost("a", 2)
    assert (questions.take_due_template(2), questions.take_due_template(2)) == (named_template("a"), None)


def test_of_answers_that_nobody_is_placed_upon_only_the_newest_are_remembered() -> None:
    questions = ShapeQuestions(RULES)
    for name in "abc":
        questions.add_planner_question(named_template(name), 0)
        questions.take_due_template(0)
        questions.note_answer(name, SHAPE_ADMITTED, 1)
    questions.set_target_template(WEB, named_template("a"), 2)
    questions.set_target_template(DB, named_template("b"), 2)
    assert [questions.take_due_template(2), questions.take_due_template(2)] == [named_template("a"), None]


def test_what_is_due_stays_in_order_whatever_was_dropped_before() -> None:
    questions = ShapeQuestions(RULES)
    for number in range(100):
        questions.set_target_template(WEB, named_template(f"passing-{number}"), number)
        questions.take_due_template(number)
        questions.note_answer(f"passing-{number}", SHAPE_ADMITTED, number)
    questions.set_target_template(DB, named_template("late"), 150)
    assert questions.take_due_template(199) == named_template("late")
    assert (questions.take_due_template(198.9), questions.next_due_at()) == (None, 199)
    assert questions.take_due_template(199) == named_template("passing-99")
