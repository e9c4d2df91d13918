"""Chooses about which templates a cluster is asked, and when.

A template is asked about at once if a planner waits, and again when its answer is old. Namespaces take turns.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from propagator.core.desired import PartTarget
from propagator.core.manifests import NamedTemplate
from spillway.events import SHAPE_ADMITTED
from spillway.pauses import doubled_pause_seconds
from spillway.places import SharedPlaces

ASKED: Final = float("inf")
STALE_SHARE_MAX: Final = 4
"""The heap is cleared of stale entries once it has more than this many entries for each question."""


@dataclass(frozen=True, slots=True)
class AskRules:
    """The limits of the questions. Times are in seconds, the others are numbers of questions without a placement.

    age_max: the age at which an answer for a placed template is asked for again.
    retry_first, retry_longest: the first and the longest pause after an answer that does not admit the pod.
    waiting_max: the questions of planners that are kept and asked at most.
    hindered_max: the questions about hindered templates that are kept and asked at most.
    for_each_free: the questions that one namespace may have for each place that it leaves free.
    """

    age_max: float
    retry_first: float
    retry_longest: float
    waiting_max: int
    hindered_max: int
    for_each_free: float


@dataclass(slots=True)
class TemplateQuestion:
    """A question about one template. It has targets, or else a place.

    due_at: the time at which it is asked; ASKED while it is being asked.
    targets: the placements here with this template; a question without any is dropped once it is answered.
    place: the places of which it holds one while it has no target.
    """

    template: NamedTemplate
    due_at: float
    place: SharedPlaces | None = None
    retries: int = 0
    targets: set[PartTarget] = field(default_factory=set)


class ShapeQuestions:
    """The questions to one cluster during one turn. In the next turn, all placed templates are asked about again.

    A question without a placement has a place. Planners' questions and questions about hindered templates have places
    of their own, so that neither keeps the other out. No namespace has more places than it leaves free (docs/adr/0029).
    Namespaces take turns with one question each, of all questions that are due. So the only question of a namespace
    waits for at most one question of each other namespace.

    Source of the turns: fair queueing, Nagle, 1985 (RFC 970).
    """

    def __init__(self, rules: AskRules) -> None:
        self._rules = rules
        self._questions: dict[str, TemplateQuestion] = {}
        self._digests: dict[PartTarget, str] = {}
        self._waiting = SharedPlaces(rules.waiting_max, rules.for_each_free)
        self._hindered = SharedPlaces(rules.hindered_max, rules.for_each_free)
        self._looked_at: dict[str, set[str]] = {}
        """By namespace, the hindered templates that were asked about while others of it were left out."""
        self._later: list[tuple[float, int, str]] = []
        """A heap of (due time, order of its setting, digest). An entry is stale if its question is due at another
        time, or is in `_due` already."""
        self._set = count()
        self._due: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """The digests that are due, by namespace. The namespace whose turn is next comes first, and of its digests the
        one that has been due longest."""
        self._admitted_at: dict[str, float] = {}
        """The time of the answer of dropped questions, for the newest `waiting_max`. A placement that follows does not
        ask again at once."""

    def __len__(self) -> int:
        return len(self._questions)

    def __contains__(self, digest: str) -> bool:
        return digest in self._questions

    def add_planner_question(self, template: NamedTemplate, now: float) -> bool:
        """Adds a question that a planner waits for. Returns False when its namespace has no place for it."""
        known = self._questions.get(template.digest)
        if known is None:
            return self._add_question_with_place(self._waiting, template, now)
        if known.retries and now < known.due_at < ASKED:
            self._set_due(known, now)
        return True

    def add_hindered_questions(self, templates: Iterable[NamedTemplate], now: float) -> int:
        """Adds questions about hindered templates, as many of each namespace as it has places. Returns their number.

        templates: all that are hindered now. What is left out is added by one of the next calls: a template is not
        added a second time before all others of its namespace were.
        """
        added, left_out = 0, set[str]()
        for template in templates:
            namespace, digest = template.namespace, template.digest
            if digest in self._questions or digest in self._looked_at.get(namespace, ()):
                continue
            if self._add_question_with_place(self._hindered, template, now):
                self._looked_at.setdefault(namespace, set()).add(digest)
                added += 1
            else:
                left_out.add(namespace)
        self._looked_at = {one: digests for one, digests in self._looked_at.items() if one in left_out}
        return added

    def set_target_template(self, target: PartTarget, template: NamedTemplate | None, now: float) -> None:
        """Sets the template that a target's placement has here now, so that it is asked about when it is due.

        None: no pod should run at the target. A question without other targets is then dropped, unless it is due and
        its namespace has a place for it.
        """
        before = self._digests.get(target)
        if template is not None and before == template.digest:
            return
        if before is not None:
            del self._digests[target]
            self._remove_target(self._questions[before], target, now)
        if template is not None:
            self._digests[target] = template.digest
            question = self._questions.get(template.digest) or self._add_question(
                template, self._first_due_at(template, now)
            )
            question.targets.add(target)
            self._give_back_place(question)

    def take_due_template(self, now: float) -> NamedTemplate | None:
        """Returns the template that has been due longest of the namespace whose turn is next; None if none is due.

        It is not returned again before it is answered.
        """
        self._collect_due_questions(now)
        if not self._due:
            return None
        namespace, digests = self._due.popitem(last=False)
        question = self._questions[digests.popitem(last=False)[0]]
        if digests:
            self._due[namespace] = digests
        question.due_at = ASKED
        return question.template

    def next_due_at(self) -> float:
        """Returns the time at which the next question is due; ASKED when none is."""
        if self._due:
            digests = next(iter(self._due.values()))
            return self._questions[next(iter(digests))].due_at
        while self._later and self._is_stale(self._later[0]):
            heappop(self._later)
        return self._later[0][0] if self._later else ASKED

    def note_answer(self, digest: str, state: str, now: float) -> None:
        """Sets when the answered question is due again: when the answer is old, or after a pause if not admitted.

        A question without a placement is dropped.
        """
        question = self._questions.get(digest)
        if question is None:
            return
        if not question.targets:
            self._drop_question(question)
            self._remember_admission(digest, state, now)
        elif state == SHAPE_ADMITTED:
            question.retries = 0
            self._set_due(question, now + self._rules.age_max)
        else:
            pause = doubled_pause_seconds(self._rules.retry_first, self._rules.retry_longest, question.retries)
            question.retries += 1
            self._set_due(question, now + pause)

    def note_answer_lost(self, digest: str, now: float) -> None:
        """Makes the template due, if a placement has it, because its answer is not in the log any more."""
        self._admitted_at.pop(digest, None)
        known = self._questions.get(digest)
        if known is not None and now < known.due_at < ASKED:
            self._set_due(known, now)

    def _remember_admission(self, digest: str, state: str, now: float) -> None:
        self._admitted_at.pop(digest, None)
        if state == SHAPE_ADMITTED:
            self._admitted_at[digest] = now
        if len(self._admitted_at) > self._rules.waiting_max:
            del self._admitted_at[next(iter(self._admitted_at))]

    def _first_due_at(self, template: NamedTemplate, now: float) -> float:
        admitted_at = self._admitted_at.pop(template.digest, None)
        return now if admitted_at is None else max(now, admitted_at + self._rules.age_max)

    def _add_question_with_place(self, places: SharedPlaces, template: NamedTemplate, now: float) -> bool:
        if not places.take_place(template.namespace):
            return False
        self._add_question(template, now).place = places
        return True

    def _add_question(self, template: NamedTemplate, due_at: float) -> TemplateQuestion:
        question = self._questions[template.digest] = TemplateQuestion(template, due_at)
        self._set_due(question, due_at)
        return question

    def _remove_target(self, question: TemplateQuestion, target: PartTarget, now: float) -> None:
        """Removes a target. The last one leaves a place to a question that is due, since a planner may wait for it."""
        question.targets.discard(target)
        if question.targets:
            return
        if question.due_at <= now and self._waiting.take_place(question.template.namespace):
            question.place = self._waiting
        else:
            self._drop_question(question)

    def _drop_question(self, question: TemplateQuestion) -> None:
        del self._questions[question.template.digest]
        self._remove_from_due(question.template)
        self._give_back_place(question)

    def _give_back_place(self, question: TemplateQuestion) -> None:
        if question.place is not None:
            question.place.give_back_place(question.template.namespace)
            question.place = None

    def _set_due(self, question: TemplateQuestion, due_at: float) -> None:
        self._remove_from_due(question.template)
        question.due_at = due_at
        heappush(self._later, (due_at, next(self._set), question.template.digest))
        if len(self._later) > STALE_SHARE_MAX * len(self._questions):
            self._later = [entry for entry in self._later if not self._is_stale(entry)]
            heapify(self._later)

    def _collect_due_questions(self, now: float) -> None:
        """Moves the questions that are due from the heap to their namespaces, in the order in which they are due."""
        while self._later and self._later[0][0] <= now:
            entry = heappop(self._later)
            if not self._is_stale(entry):
                template = self._questions[entry[2]].template
                self._due.setdefault(template.namespace, OrderedDict())[template.digest] = None

    def _remove_from_due(self, template: NamedTemplate) -> None:
        digests = self._due.get(template.namespace)
        if digests is not None:
            digests.pop(template.digest, None)
            if not digests:
                del self._due[template.namespace]

    def _is_stale(self, entry: tuple[float, int, str]) -> bool:
        due_at, _, digest = entry
        question = self._questions.get(digest)
        return question is None or question.due_at != due_at or digest in self._due.get(question.template.namespace, ())
