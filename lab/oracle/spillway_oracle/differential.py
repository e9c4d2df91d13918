"""`make differential`: Hypothesis makes cases. Compares planner and oracle, counts results, and shrinks differences."""

import argparse
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from .binary import ensure_oracle
from .cases import Case, any_case, read_case, seeded_case
from .oracle import Oracle, OracleFailed
from .promises import check_promises
from .pruning import pruned_case
from .reasons import ALIKE
from .verdicts import AGREES, UNMODELLED, Verdict, request_of_case, truth_of_answers, verdict_on_case

SEEDS_PER_JOB = 1_000_000
PROMISES_PERCENT = 10
"""Additional cases with several templates, in percent of the cases with one."""

BROKEN = "a promise broken"


@dataclass(slots=True)
class Tally:
    """Counts. kinds: cases by verdict. features: compared cases of each feature. exact: cases where order matters, with
    certain = least and most = possible. slack: sum of replicas between them. smallest: one case of each disagreement.
    """

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    unmodelled: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    ordered: Counter[str] = field(default_factory=Counter)
    promises: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    smallest: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def add_verdict(self, case: Case, found: Verdict) -> None:
        self.cases += 1
        self.seen.add(hash(_case_text(case)))
        self.kinds[found.kind] += 1
        if found.kind == UNMODELLED:
            self.unmodelled.update(set(found.answer.unmodelled))
        elif found.kind == AGREES:
            self.features.update(case.features)
            self.reasons.update(one.plugin if one.kind == ALIKE else one.kind for one in found.reasons)
            if found.truth.ordered:
                self._count_ordered_case(found)
        self.keep_smallest_case(case, found)

    def keep_smallest_case(self, case: Case, found: Verdict) -> None:
        if not found.is_disagreement:
            return
        name = f"{found.kind}, {case.main_feature}"
        known = self.smallest.get(name)
        size = len(_case_text(case))
        if known is None or size < known["size"]:
            self.smallest[name] = _disagreement_record(case, found, size)

    def _count_ordered_case(self, found: Verdict) -> None:
        truth, answer = found.truth, found.answer
        self.ordered["compared"] += 1
        self.ordered["the least is below the most"] += truth.least < truth.most
        self.ordered["every choice tried"] += truth.every
        self.ordered["certain is the least"] += answer.certain == truth.least
        self.ordered["possible is the most"] += answer.possible == truth.most
        self.ordered["replicas, least"] += truth.least
        self.ordered["replicas, certain"] += answer.certain
        self.ordered["replicas, most"] += truth.most
        self.ordered["replicas, possible"] += answer.possible

    def add_tally(self, other: "Tally") -> None:
        self.cases += other.cases
        self.seen |= other.seen
        for name in ("kinds", "unmodelled", "features", "ordered", "promises", "reasons"):
            getattr(self, name).update(getattr(other, name))
        for kind, record in other.smallest.items():
            if kind not in self.smallest or record["size"] < self.smallest[kind]["size"]:
                self.smallest[kind] = record


def _case_text(case: Case) -> str:
    return json.dumps([case.world, case.namespace, case.template], sort_keys=True)


def _disagreement_record(case: Case, found: Verdict, size: int) -> dict[str, Any]:
    return {
        "size": size,
        "kind": found.kind,
        "detail": found.detail,
        "planner": asdict(found.answer),
        "oracle": asdict(found.truth),
        "case": {
            "world": case.world,
            "namespace": case.namespace,
            "template": case.template,
            "features": case.features,
            "about": case.main_feature,
        },
    }


def judge_case(case: Case, oracle: Oracle) -> Verdict:
    return verdict_on_case(case, truth_of_answers(case, oracle.send_request(request_of_case(case)).placed))


def explore_cases(cases: int, number: int, shrink: bool) -> Tally:
    """Compares a quarter of the cases by Hypothesis, which often repeats one with a small change, and the rest by
    seeds.

    If some disagree, Hypothesis searches them again and shrinks them, and one of each kind is pruned.
    """
    tally = Tally()
    with Oracle() as oracle:
        _run_hypothesis(
            lambda case: tally.add_verdict(case, judge_case(case, oracle)), cases // 4, number, (Phase.generate,)
        )
        seeded = [seeded_case(number * SEEDS_PER_JOB + index) for index in range(cases - cases // 4)]
        for case, answer in zip(seeded, oracle.send_requests([request_of_case(case) for case in seeded]), strict=True):
            tally.add_verdict(case, verdict_on_case(case, truth_of_answers(case, answer.placed)))
        _count_promises(tally, cases * PROMISES_PERCENT // 100, number, oracle)
        if any("case" in record for record in tally.smallest.values()) and shrink:
            _shrink_disagreements(tally, cases // 4, number, oracle)
    return tally


def _count_promises(tally: Tally, cases: int, number: int, oracle: Oracle) -> None:
    figures, broken = check_promises(cases, number, oracle)
    tally.promises.update(figures)
    for found in broken:
        record = {"kind": BROKEN, "detail": f"{found.unplaced} replicas without a node", "promises": asdict(found)}
        size = len(json.dumps(record))
        name = f"{BROKEN}, {found.kind_of_templates}"
        if name not in tally.smallest or size < tally.smallest[name]["size"]:
            tally.smallest[name] = record | {"size": size}


def _shrink_disagreements(tally: Tally, cases: int, number: int, oracle: Oracle) -> None:
    def raise_on_disagreement(case: Case) -> None:
        found = judge_case(case, oracle)
        tally.keep_smallest_case(case, found)
        if found.is_disagreement:
            # With one exception type for each kind, Hypothesis shrinks a case of each kind.
            raise type(found.kind, (AssertionError,), {})(found.detail)

    with contextlib.suppress(AssertionError, BaseExceptionGroup):
        _run_hypothesis(raise_on_disagreement, cases, number, (Phase.generate, Phase.shrink))
    for record in [record for record in tally.smallest.values() if "case" in record]:
        kind, about = record["kind"], record["case"]["about"]

        def is_same_disagreement(case: Case, kind: str = kind, about: str = about) -> bool:
            try:
                found = judge_case(case, oracle)
            except (OracleFailed, AssertionError, msgspec.ValidationError, KeyError):
                return False
            return found.kind == kind and case.main_feature == about

        case = pruned_case(read_case(record["case"]), is_same_disagreement)
        tally.keep_smallest_case(case, judge_case(case, oracle))


def _run_hypothesis(check: Callable[[Case], None], cases: int, number: int, phases: tuple[Phase, ...]) -> None:
    chosen = settings(
        max_examples=max(1, cases),
        phases=phases,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=tuple(HealthCheck),
    )
    seed(number)(chosen(given(any_case())(check)))()


def main() -> int:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="cases in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first job; each further one has the next")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=Path("build/differential"), help="folder for the figures and cases")
    parser.add_argument("--no-shrink", action="store_true", help="do not make the cases of disagreements small")
    chosen = parser.parse_args()
    ensure_oracle()
    started = time.monotonic()
    tally = Tally()
    per_job = -(-chosen.cases // chosen.jobs)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        numbers = range(chosen.seed, chosen.seed + chosen.jobs)
        for part in [pool.submit(explore_cases, per_job, number, not chosen.no_shrink) for number in numbers]:
            tally.add_tally(part.result())
    seconds = time.monotonic() - started
    report = _report_text(tally, seconds)
    print(report)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "report.txt").write_text(report + "\n")
    for kind, record in sorted(tally.smallest.items()):
        path = chosen.out / f"{kind.replace(',', '').replace(' ', '-')}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{kind}: {path}: {record['detail']}")
    return 1 if tally.smallest else 0


def _report_text(tally: Tally, seconds: float) -> str:
    lines = [f"{tally.cases} cases ({len(tally.seen)} different) in {seconds:.0f} s"]
    for title, counts in (
        ("verdicts", tally.kinds),
        ("not modelled, by reason", tally.unmodelled),
        ("agreeing cases by feature", tally.features),
        ("agreeing cases in which order matters", tally.ordered),
        ("nodes that take no more, alike by plugin; or why not compared", tally.reasons),
    ):
        lines += [f"{title}:", *(f"  {count:7d}  {name}" for name, count in counts.most_common())]
    lines += ["several templates, promised beside each other:"]
    lines += [f"  {count:7d}  {name}" for name, count in sorted(tally.promises.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
