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
from .pruning import pruned
from .reasons import ALIKE
from .verdicts import AGREES, UNMODELLED, Verdict, question, truth_of, verdict

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

    def add(self, case: Case, found: Verdict) -> None:
        self.cases += 1
        self.seen.add(hash(_text(case)))
        self.kinds[found.kind] += 1
        if found.kind == UNMODELLED:
            self.unmodelled.update(set(found.answer.unmodelled))
        elif found.kind == AGREES:
            self.features.update(case.features)
            self.reasons.update(one.plugin if one.kind == ALIKE else one.kind for one in found.reasons)
            if found.truth.ordered:
                self._ordered(found)
        self.keep(case, found)

    def keep(self, case: Case, found: Verdict) -> None:
        if not found.disagrees:
            return
        name = f"{found.kind}, {case.about}"
        known = self.smallest.get(name)
        size = len(_text(case))
        if known is None or size < known["size"]:
            self.smallest[name] = _record(case, found, size)

    def _ordered(self, found: Verdict) -> None:
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

    def join(self, other: "Tally") -> None:
        self.cases += other.cases
        self.seen |= other.seen
        for name in ("kinds", "unmodelled", "features", "ordered", "promises", "reasons"):
            getattr(self, name).update(getattr(other, name))
        for kind, record in other.smallest.items():
            if kind not in self.smallest or record["size"] < self.smallest[kind]["size"]:
                self.smallest[kind] = record


def _text(case: Case) -> str:
    return json.dumps([case.world, case.namespace, case.template], sort_keys=True)


def _record(case: Case, found: Verdict, size: int) -> dict[str, Any]:
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
            "about": case.about,
        },
    }


def judge(case: Case, oracle: Oracle) -> Verdict:
    return verdict(case, truth_of(case, oracle.ask(question(case)).placed))


def explore(cases: int, number: int, shrink: bool) -> Tally:
    """Compares a quarter of the cases by Hypothesis, which often repeats one with a small change, and the rest by
    seeds.

    If some disagree, Hypothesis searches them again and shrinks them, and one of each kind is pruned.
    """
    tally = Tally()
    with Oracle() as oracle:
        _by_hypothesis(lambda case: tally.add(case, judge(case, oracle)), cases // 4, number, (Phase.generate,))
        seeded = [seeded_case(number * SEEDS_PER_JOB + index) for index in range(cases - cases // 4)]
        for case, answer in zip(seeded, oracle.ask_all([question(case) for case in seeded]), strict=True):
            tally.add(case, verdict(case, truth_of(case, answer.placed)))
        _count_promises(tally, cases * PROMISES_PERCENT // 100, number, oracle)
        if any("case" in record for record in tally.smallest.values()) and shrink:
            _make_small(tally, cases // 4, number, oracle)
    return tally


def _count_promises(tally: Tally, cases: int, number: int, oracle: Oracle) -> None:
    figures, broken = check_promises(cases, number, oracle)
    tally.promises.update(figures)
    for found in broken:
        record = {"kind": BROKEN, "detail": f"{found.unplaced} replicas without a node", "promises": asdict(found)}
        size = len(json.dumps(record))
        name = f"{BROKEN}, {found.kind}"
        if name not in tally.smallest or size < tally.smallest[name]["size"]:
            tally.smallest[name] = record | {"size": size}


def _make_small(tally: Tally, cases: int, number: int, oracle: Oracle) -> None:
    def fail(case: Case) -> None:
        found = judge(case, oracle)
        tally.keep(case, found)
        if found.disagrees:
            # With one exception type for each kind, Hypothesis shrinks a case of each kind.
            raise type(found.kind, (AssertionError,), {})(found.detail)

    with contextlib.suppress(AssertionError, BaseExceptionGroup):
        _by_hypothesis(fail, cases, number, (Phase.generate, Phase.shrink))
    for record in [record for record in tally.smallest.values() if "case" in record]:
        kind, about = record["kind"], record["case"]["about"]

        def still(case: Case, kind: str = kind, about: str = about) -> bool:
            try:
                found = judge(case, oracle)
            except (OracleFailed, AssertionError, msgspec.ValidationError, KeyError):
                return False
            return found.kind == kind and case.about == about

        case = pruned(read_case(record["case"]), still)
        tally.keep(case, judge(case, oracle))


def _by_hypothesis(check: Callable[[Case], None], cases: int, number: int, phases: tuple[Phase, ...]) -> None:
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
        for part in [pool.submit(explore, per_job, number, not chosen.no_shrink) for number in numbers]:
            tally.join(part.result())
    seconds = time.monotonic() - started
    report = _report(tally, seconds)
    print(report)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "report.txt").write_text(report + "\n")
    for kind, record in sorted(tally.smallest.items()):
        path = chosen.out / f"{kind.replace(',', '').replace(' ', '-')}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{kind}: {path}: {record['detail']}")
    return 1 if tally.smallest else 0


def _report(tally: Tally, seconds: float) -> str:
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
