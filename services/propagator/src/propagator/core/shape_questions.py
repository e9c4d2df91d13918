"""Chooses about which templates a cluster is asked, and when.

A template is asked about at once if a planner waits, and again when its answer is old.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from propagator.core.desired import PartTarget
from propagator.core.manifests import NamedTemplate
from spillway.events import SHAPE_ADMITTED
from spillway.pauses import doubled_pause_seconds

ASKED: Final = float("inf")
STALE_SHARE_MAX: Final = 4
"""The heap is cleared of stale entries once it has more than this many entries for each question."""


@dataclass(frozen=True, slots=True)
class AskRules:
    """The limits of the questions, in seconds; waiting_max is a number of questions.

    age_max: the age at which an answer for a placed template is asked for again.
    retry_first, retry_longest: the first and the longest pause after an answer that does not admit the pod.
    waiting_max: the questions without a placement that are kept and asked at most.
    """

    age_max: float
    retry_first: float
    retry_longest: float
    waiting_max: int


@dataclass(slots=True)
class TemplateQuestion:
    """A question about one template.

    due_at: the time at which it is asked; ASKED while it is being asked.
    targets: the placements here with this template; a question without any is dropped once it is answered.
    """

    template: NamedTemplate
    due_at: float
    retries: int = 0
    targets: set[PartTarget] = field(default_factory=set)


class ShapeQuestions:
    """The questions to one cluster during one turn. In the next turn, all placed templates are asked about again."""

    def __init__(self, rules: AskRules) -> None:
        self._rules = rules
        self._questions: dict[str, TemplateQuestion] = {}
        self._digests: dict[PartTarget, str] = {}
        self._due: list[tuple[float, int, str]] = []
        """A heap of (due time, order of its setting, digest). An entry is stale if its question is due at another
        time."""
        self._set = count()
        self._admitted_at: dict[str, float] = {}
        """The time of the answer of dropped questions, for the newest `waiting_max`. A placement that follows does not
        ask again at once."""

    def __len__(self) -> int:
        return len(self._questions)

    def __contains__(self, digest: str) -> bool:
        return digest in self._questions

    def add_planner_question(self, template: NamedTemplate, now: float) -> bool:
        """Adds a question that a planner waits for. Returns False when too many questions wait already."""
        known = self._questions.get(template.digest)
        if known is None and len(self._questions) >= self._rules.waiting_max + len(self._digests):
            return False
        if known is None:
            self._add_question(template, now)
        elif known.retries and now < known.due_at < ASKED:
            self._set_due(known, now)
        return True

    def set_target_template(self, target: PartTarget, template: NamedTemplate | None, now: float) -> None:
        """Sets the template that a target's placement has here now, so that it is asked about when it is due.

        None: no pod should run at the target. A question without other targets is then dropped.
        """
        before = self._digests.get(target)
        if template is not None and before == template.digest:
            return
        if before is not None:
            del self._digests[target]
            question = self._questions[before]
            question.targets.discard(target)
            if not question.targets and question.due_at > now:
                del self._questions[before]
        if template is not None:
            self._digests[target] = template.digest
            question = self._questions.get(template.digest) or self._add_question(
                template, self._first_due_at(template, now)
            )
            question.targets.add(target)

    def take_due_template(self, now: float) -> NamedTemplate | None:
        """Returns the template that has been due longest, or None. It is not returned again before it is answered."""
        if self.next_due_at() > now:
            return None
        question = self._questions[heappop(self._due)[2]]
        question.due_at = ASKED
        return question.template

    def next_due_at(self) -> float:
        """Returns the time at which the next question is due; ASKED when none is."""
        while self._due and self._is_stale(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else ASKED

    def note_answer(self, digest: str, state: str, now: float) -> None:
        """Sets when the answered question is due again: when the answer is old, or after a pause if not admitted.

        A question without a placement is dropped.
        """
        question = self._questions.get(digest)
        if question is None:
            return
        if not question.targets:
            del self._questions[digest]
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

    def _add_question(self, template: NamedTemplate, due_at: float) -> TemplateQuestion:
        question = self._questions[template.digest] = TemplateQuestion(template, due_at)
        self._set_due(question, due_at)
        return question

    def _set_due(self, question: TemplateQuestion, due_at: float) -> None:
        question.due_at = due_at
        heappush(self._due, (due_at, next(self._set), question.template.digest))
        if len(self._due) > STALE_SHARE_MAX * len(self._questions):
            self._due = [entry for entry in self._due if not self._is_stale(entry)]
            heapify(self._due)

    def _is_stale(self, entry: tuple[float, int, str]) -> bool:
        due_at, _, digest = entry
        question = self._questions.get(digest)
        return question is None or question.due_at != due_at
