"""Which templates a cluster is asked about, and when: at once when somebody waits, and again when answers grow old."""

from dataclasses import dataclass, field
from typing import Final

from propagator.core.desired import Target
from propagator.core.manifests import Template
from spillway.events import SHAPE_ADMITTED
from spillway.pauses import doubled_seconds

ASKED: Final = float("inf")


@dataclass(frozen=True, slots=True)
class AskRules:
    """In seconds, but for waiting_max: questions that nobody asked for again are kept and asked at the most."""

    age_max: float
    retry_first: float
    retry_longest: float
    waiting_max: int


@dataclass(slots=True)
class Question:
    """due_at: ASKED while it is asked. targets: who is placed here with this template; with none it is dropped."""

    template: Template
    due_at: float
    retries: int = 0
    targets: set[Target] = field(default_factory=set)


class Questions:
    """Of one cluster. Nothing of it outlives a claim of the cluster: the next owner asks again."""

    def __init__(self, rules: AskRules) -> None:
        self._rules = rules
        self._questions: dict[str, Question] = {}
        self._digests: dict[Target, str] = {}

    def __len__(self) -> int:
        return len(self._questions)

    def __contains__(self, digest: str) -> bool:
        return digest in self._questions

    def ask(self, template: Template, now: float) -> bool:
        """Somebody waits for the answer. False when too many wait already."""
        known = self._questions.get(template.digest)
        if known is None and len(self._questions) >= self._rules.waiting_max + len(self._digests):
            return False
        if known is None:
            self._questions[template.digest] = Question(template, now)
        elif known.retries and known.due_at < ASKED:
            known.due_at = min(known.due_at, now)
        return True

    def note(self, target: Target, template: Template | None, now: float) -> None:
        """What a placement has here now; None: nothing that is to run."""
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
            self._questions.setdefault(template.digest, Question(template, now)).targets.add(target)

    def take(self, now: float) -> Template | None:
        """The one that is due longest; it is not given again before it is answered."""
        due = [one for one in self._questions.values() if one.due_at <= now]
        if not due:
            return None
        question = min(due, key=lambda one: one.due_at)
        question.due_at = ASKED
        return question.template

    def next_due(self) -> float:
        return min((one.due_at for one in self._questions.values()), default=ASKED)

    def answered(self, digest: str, state: str, now: float) -> None:
        question = self._questions.get(digest)
        if question is None:
            return
        if not question.targets:
            del self._questions[digest]
        elif state == SHAPE_ADMITTED:
            question.retries, question.due_at = 0, now + self._rules.age_max
        else:
            pause = doubled_seconds(self._rules.retry_first, self._rules.retry_longest, question.retries)
            question.retries, question.due_at = question.retries + 1, now + pause
