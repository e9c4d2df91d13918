"""Which template a cluster is asked about, and when."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from propagator.core.desired import PartTarget
from propagator.core.manifests import NamedTemplate
from propagator.core.shape_questions import AskRules, ShapeQuestions
from spillway.events import SHAPE_ADMITTED, SHAPE_REFUSED, SHAPE_UNASKED

RULES = AskRules(age_max=100.0, retry_first=5.0, retry_longest=15.0, waiting_max=4, hindered_max=4, for_each_free=1.0)
WEB, DB = PartTarget("own-1", "default", "web"), PartTarget("own-1", "default", "db")


def named_template(digest: str, namespace: str = "default") -> NamedTemplate:
    return NamedTemplate(digest, namespace, "web", {})


def numbered_templates(namespaces: str) -> list[NamedTemplate]:
    """Returns a template for each letter, a namespace: a1, a2, … of namespace a."""
    numbers = Counter[str]()
    found = []
    for namespace in namespaces:
        numbers[namespace] += 1
        found.append(named_template(f"{namespace}{numbers[namespace]}", namespace))
    return found


def take_all_due(questions: ShapeQuestions, now: float = 0.0) -> list[str]:
    return [one.digest for one in iter(lambda: questions.take_due_template(now), None)]


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
    for name in "abcde":
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
    assert questions.take_due_template(198.9) == named_template("late")
    assert (questions.take_due_template(198.9), questions.next_due_at()) == (None, 199)
    assert questions.take_due_template(199) == named_template("passing-99")


PLACES = (
    # the namespace of each new template, how many places there are; and those whose template is asked about
    pytest.param("aaaaaa", 8, "aaaa", id="one namespace: half of the places"),
    pytest.param("aaaaaabbb", 8, "aaaabb", id="another one: half of what is left"),
    pytest.param("aaaaaabbbcc", 8, "aaaabbc", id="each further one: half of what is left then"),
    pytest.param("aaaaaabbbccd", 8, "aaaabbcd", id="the first of a namespace: the last place"),
    pytest.param("aaaaaabbbccde", 8, "aaaabbcd", id="no place is left"),
    pytest.param("abababab", 8, "ababa", id="two by turns"),
    pytest.param("ab", 1, "a", id="one place"),
)


@pytest.mark.parametrize(("asking", "most", "expected"), PLACES)
@pytest.mark.parametrize("of_planners", [True, False], ids=["planners", "hindered"])
def test_how_many_questions_of_a_namespace_may_wait(asking: str, most: int, expected: str, of_planners: bool) -> None:
    questions = ShapeQuestions(replace(RULES, waiting_max=most, hindered_max=most))
    templates = numbered_templates(asking)
    if of_planners:
        taken = [questions.add_planner_question(one, 0) for one in templates]
        assert "".join(one.namespace for one, is_taken in zip(templates, taken, strict=True) if is_taken) == expected
    else:
        assert questions.add_hindered_questions(templates, 0) == len(expected)
    assert Counter(digest[0] for digest in take_all_due(questions)) == Counter(expected)


TURNS = (
    # the namespaces of planners' questions, of placed templates and of hindered ones; and the order of the questions
    pytest.param("aaab", "", "", ["a1", "b1", "a2", "a3"], id="one of each namespace"),
    pytest.param("aabbc", "", "", ["a1", "b1", "c1", "a2", "b2"], id="one of each, then the next of each"),
    pytest.param("b", "aaa", "", ["a1", "b1", "a2", "a3"], id="placed templates take turns, too"),
    pytest.param("aaa", "", "b", ["a1", "b1", "a2", "a3"], id="hindered ones, too"),
    pytest.param("", "aa", "bb", ["a1", "b1", "a2", "b2"], id="placed and hindered ones"),
)


@pytest.mark.parametrize(("of_planners", "placed", "hindered", "expected"), TURNS)
def test_namespaces_take_turns(of_planners: str, placed: str, hindered: str, expected: list[str]) -> None:
    questions = ShapeQuestions(replace(RULES, waiting_max=100))
    for template in numbered_templates(placed):
        questions.set_target_template(PartTarget("own-1", template.namespace, template.digest), template, 0)
    for template in numbered_templates(of_planners):
        assert questions.add_planner_question(template, 0)
    assert questions.add_hindered_questions(numbered_templates(hindered), 0) == len(hindered)
    assert take_all_due(questions) == expected


def test_planners_questions_and_hindered_templates_keep_each_other_from_no_place() -> None:
    questions = ShapeQuestions(RULES)
    while questions.add_planner_question(named_template(f"new-{len(questions)}", f"ns-{len(questions)}"), 0):
        pass
    assert len(questions) == RULES.waiting_max
    assert questions.add_hindered_questions([named_template("refused", "shop")], 0) == 1
    assert "refused" in take_all_due(questions)[: RULES.waiting_max + 1]


def test_hindered_templates_beyond_the_places_of_their_namespace_come_before_others_come_again() -> None:
    """Each minute the templates come in the same order: without turns the last ones would never be asked about."""
    questions, hindered, asked = ShapeQuestions(RULES), numbered_templates("aaaaab"), []
    for minute in range(4):
        questions.add_hindered_questions(hindered, minute)
        asked.append(take_all_due(questions, minute))
        for digest in asked[-1]:
            questions.note_answer(digest, SHAPE_REFUSED, minute)
    assert asked == [["a1", "b1", "a2"], ["a3", "b1", "a4"], ["a5", "b1"], ["a1", "b1", "a2"]]


def test_who_is_placed_gives_its_place_back_and_takes_one_again_when_it_is_due_and_placed_no_more() -> None:
    questions = ShapeQuestions(RULES)
    assert [questions.add_planner_question(named_template(name), 0) for name in "abc"] == [True, True, False]
    questions.set_target_template(WEB, named_template("a"), 0)
    assert questions.add_planner_question(named_template("c"), 0)
    questions.set_target_template(WEB, None, 1)
    assert "a" not in questions, "its namespace has no place for it"
    questions.set_target_template(WEB, named_template("b"), 1)
    questions.set_target_template(WEB, None, 1)
    assert "b" in questions
    assert not questions.add_planner_question(named_template("d"), 1)


class Asking:
    """Steps of some namespaces, one a second: questions, placements, and what the cluster is asked and answers."""

    def __init__(self, most: int) -> None:
        self.questions = ShapeQuestions(replace(RULES, waiting_max=most, hindered_max=most))
        self.now = 0
        self.asked: list[str] = []
        self.placed: dict[str, str] = {}
        """The digest of the placed template by namespace."""
        self.namespaces: dict[str, str] = {}
        """The namespace of each template by digest."""

    def places_by_namespace(self) -> Counter[str]:
        """Returns how many questions without a placement each namespace has."""
        kept = (digest for digest in self.namespaces if digest in self.questions)
        return Counter(self.namespaces[digest] for digest in kept if digest not in self.placed.values())

    def make_step(self, step: str, namespace: str) -> bool:
        """Makes one step with a new template. Returns False if a question was left out."""
        self.now += 1
        template = named_template(f"{namespace}-{self.now}", namespace)
        self.namespaces[template.digest] = namespace
        match step:
            case "planner":
                return self.questions.add_planner_question(template, self.now)
            case "hindered":
                return self.questions.add_hindered_questions([template], self.now) > 0
            case "place":
                self.questions.set_target_template(PartTarget("own-1", namespace, "web"), template, self.now)
                self.placed[namespace] = template.digest
            case "leave":
                self.questions.set_target_template(PartTarget("own-1", namespace, "web"), None, self.now)
                self.placed.pop(namespace, None)
            case "ask":
                self.take_question()
            case "answer" if self.asked:
                self.questions.note_answer(self.asked.pop(0), SHAPE_REFUSED, self.now)
        return True

    def take_question(self) -> str:
        """Returns the namespace of the question that the cluster is asked now; empty if none is due."""
        taken = self.questions.take_due_template(self.now)
        if taken is None:
            return ""
        self.asked.append(taken.digest)
        return taken.namespace


def steps_of(*steps: str) -> st.SearchStrategy[list[tuple[str, str]]]:
    return st.lists(st.tuples(st.sampled_from(steps), st.sampled_from("abcde")), max_size=80)


@given(
    st.integers(1, 20),
    st.sampled_from(("planner", "hindered", "place")),
    steps_of("planner", "hindered", "place", "leave", "ask", "answer"),
    steps_of("planner", "hindered", "place", "leave", "answer"),
)
def test_the_only_question_of_a_namespace_is_asked_after_one_of_each_other_at_most(
    most: int, kind: str, before: list[tuple[str, str]], meanwhile: list[tuple[str, str]]
) -> None:
    """Whatever others ask, place and remove before it and while it waits: of k namespaces it is among the next k."""
    asking, steps, others = Asking(most), iter(meanwhile), list[str]()
    for step, namespace in before:
        asking.make_step(step, namespace)
    if not asking.make_step(kind, "late"):
        assert asking.places_by_namespace().total() >= most, "the first of a namespace is left out for want of a place"
        return
    while (namespace := asking.take_question()) != "late":
        others.append(namespace)
        for _ in range(2):
            asking.make_step(*next(steps, ("planner", "a")))
    assert "" not in others
    assert len(set(others)) == len(others), "nobody else was asked a second time"


@given(st.integers(1, 20), steps_of("planner", "planner", "planner", "place", "leave", "ask", "answer"))
def test_no_question_is_left_out_while_its_namespace_has_less_than_half_of_what_the_others_leave(
    most: int, steps: list[tuple[str, str]]
) -> None:
    asking = Asking(most)
    for step, namespace in steps:
        before = asking.places_by_namespace()
        own, others = before[namespace], before.total() - before[namespace]
        if not asking.make_step(step, namespace):
            assert own + others == most or 2 * (own + 1) > most - others
        after = asking.places_by_namespace()
        assert after.total() <= most
        assert max(after.values(), default=0) <= max(1, most // 2)
