"""Runs the mutants: `python lab/mutants/mutants.py --stage tests --only P4`. Goes on where an earlier run ended."""

import argparse
import json
import math
import queue
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import ledger
from .baseline import Baseline, baseline
from .catalogue import ROOT, Mutant, Stale, mutants, path_of
from .judging import Unjudged, failed_tests, is_final, judged_by_seed, judged_by_tests, kind_of
from .ledger import BROKEN, EQUIVALENT, GOING, KILLED, NOTICED, SEEDS, SURVIVES, TESTS, Row
from .workbench import SOURCES, Limits, NotRun, SeedRan, Workbench, commit, digest_of, folders_of_sources, last_line

FIRST_SEED = 700_000
"""Seeds from here on are for mutants only: nobody has examined their runs."""
OTHER_SEEDS = 72
"""Number of these seeds that run without a mutant, beside the kept ones. The seeds of a mutant are chosen from them."""
SEEDS_ALL = 100
"""A mutant that this many seeds do not notice counts as judged."""
SEEDS_A_LINE = 10
SIMULATION = "lab/simulation"
BASELINE = Path("build/mutants-baseline.json")
SEEDS_WITHOUT = Path("build/mutants-seeds.jsonl")
WHOLE = (*SOURCES, "conftest.py", "tests/path", "tests/contract", SIMULATION)


@dataclass(frozen=True, slots=True)
class Asked:
    stage: str
    only: tuple[str, ...]
    jobs: int
    seeds: int
    again: bool


class Run:
    """Judges the mutants that are not judged yet. every: all mutants, also those not chosen, for runs without a
    mutant."""

    def __init__(
        self,
        asked: Asked,
        chosen: Sequence[Mutant],
        limits: Limits,
        root: Path = ROOT,
        book: Path = ledger.LEDGER,
        every: Sequence[Mutant] = (),
    ) -> None:
        self._asked, self._chosen, self._limits = asked, chosen, limits
        self._root, self._book, self._every = root, book, tuple(every) or tuple(chosen)
        self._known, self._commit = ledger.read(book), commit(root)
        self._code = digest_of(WHOLE, root)
        self._scopes: dict[tuple[str, str], str] = {}
        self._writing = threading.Lock()
        self._flaws = [name for name, failed in self._remembered().items() if failed and not name.startswith("seeds:")]
        self.trouble = list(map(_flawed, self._flaws))

    def row(self, mutant: Mutant, stage: str) -> Row | None:
        """Returns the row of the mutant in its present form and for the present code; None if there is none."""
        known = self._known.get((mutant.id, stage))
        same = known is not None and (known.change, known.scope) == (mutant.digest, self._scope(mutant, stage))
        return known if same else None

    def _scope(self, mutant: Mutant, stage: str) -> str:
        """Returns the digest from the first call: the copy is from then, even if files change during a run."""
        place = (mutant.id, stage)
        if place not in self._scopes:
            others = (SIMULATION,) if stage == SEEDS else tuple(map(path_of, mutant.tests))
            self._scopes[place] = digest_of((mutant.file, *others), self._root)
        return self._scopes[place]

    def todo(self, stage: str) -> list[Mutant]:
        found = []
        for mutant in self._chosen:
            known = self.row(mutant, stage)  # Call it in any case, so that the digest is of now.
            row = None if self._asked.again else known
            if stage == SEEDS and (mutant.seeds_cannot or self._is_broken(mutant) or self._has_more_seeds(mutant)):
                continue
            if row is None or row.by in self._flaws or self._wants_more(row):
                found.append(mutant)
        if stage == SEEDS:
            return sorted(found, key=lambda mutant: _seeds_of(self._last(mutant, SEEDS)))
        return sorted(found, key=lambda mutant: any(_needs_kafka(test) for test in mutant.tests))

    def _last(self, mutant: Mutant, stage: str) -> Row | None:
        """Returns the last row of the mutant in its present form, for any code."""
        row = self._known.get((mutant.id, stage))
        return row if row is not None and row.change == mutant.digest else None

    def _has_more_seeds(self, mutant: Mutant) -> bool:
        """Returns whether an earlier run had more seeds. Fewer seeds prove less, so such a mutant needs as many
        again."""
        row = self._last(mutant, SEEDS)
        return row is not None and row.result not in NOTICED and _numbers(row)[0] > self._asked.seeds

    def _is_broken(self, mutant: Mutant) -> bool:
        row = self._known.get((mutant.id, TESTS))
        return row is not None and row.result == BROKEN

    def _wants_more(self, row: Row) -> bool:
        """Returns whether a row needs more seeds, also when a longer run was ended before this run's number of
        seeds."""
        if row.stage == SEEDS and row.result in (SURVIVES, GOING):
            return _numbers(row)[0] < self._asked.seeds
        return not is_final(row.result)

    def stage(self, stage: str) -> None:
        todo = self.todo(stage)
        print(f"{stage}: {len(todo)} of {len(self._chosen)} mutants are to be judged", flush=True)
        kept = sum(map(self._has_more_seeds, self._chosen)) if stage == SEEDS else 0
        if kept:
            print(f"{kept} were judged by more than {self._asked.seeds} seeds, and are not judged by fewer", flush=True)
        if not todo:
            return
        waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in todo:
            waiting.put(mutant)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            benches = [
                Workbench(Path(folder) / str(number), self._limits, self._root) for number in range(self._asked.jobs)
            ]
            if stage == SEEDS:
                self._without = self._baseline(benches[0])
            threads = [threading.Thread(target=self._work, args=(bench, waiting, stage)) for bench in benches]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for bench in benches:
                bench.close()

    def _work(self, bench: Workbench, waiting: "queue.SimpleQueue[Mutant]", stage: str) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if stage == TESTS:
                    self._judge_by_tests(bench, mutant)
                else:
                    self._judge_by_seeds(bench, mutant, self._without)
            except (Stale, NotRun, Unjudged) as error:
                self._complain(f"{mutant.id}: not judged: {error}")

    def _judge_by_tests(self, bench: Workbench, mutant: Mutant) -> None:
        with bench.mutated(mutant):
            result, by = judged_by_tests(bench.test(mutant.tests, tuple(self._flaws)))
            # If a test failed by itself, it ran with the mutant. Its pass without the mutant shows that.
            why = "" if result == KILLED and "::" in by else bench.why_broken(mutant)
        if result == KILLED and by in self._flaws:
            raise Unjudged(f"{by} fails without it, too, and cannot be left out")
        self._note(mutant, TESTS, *((BROKEN, why) if why else (result, by)))

    def confirm(self) -> None:
        """Checks that tests which noticed a mutant pass without it. Mutants of the other tests are judged again."""
        while killers := self._unconfirmed():
            with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
                bench = Workbench(Path(folder), self._limits, self._root)
                print(f"without a mutant: {len(killers)} tests that noticed one", flush=True)
                ran = bench.test(killers, first=False)
            failed = failed_tests(ran.output)
            if ran.code is None or (ran.code and not failed):
                raise SystemExit(f"without a mutant: pytest ended with {ran.code}: {last_line(ran.output)}")
            self._remember({name: ["fails"] if name in failed else [] for name in killers})
            for name in failed:
                self._flaws.append(name)
                self._complain(_flawed(name))
            if not failed:
                return
            self.stage(TESTS)

    def _unconfirmed(self) -> list[str]:
        """Returns tests that noticed a mutant and have no known result without a mutant in this code."""
        known = self._remembered()
        rows = (self.row(mutant, TESTS) for mutant in self._chosen)
        return sorted({row.by for row in rows if row is not None and row.result == KILLED} - known.keys())

    def _judge_by_seeds(self, bench: Workbench, mutant: Mutant, without: Baseline) -> None:
        """Judges a mutant by seeds. Seeds that do not meet it end as without it: they count but are not run."""
        row = None if self._asked.again else self.row(mutant, SEEDS)
        _, done, others = _numbers(row) if row is not None else (0, 0, 0)
        chosen = without.chosen(mutant.id, self._asked.seeds)
        meeting = [seed for seed in chosen if without.meets(mutant.id, seed)]
        last = [seed for seed in _noticed_by(self._last(mutant, SEEDS)) if without.would_run(mutant.id, seed)]
        order = [*last, *(seed for seed in meeting if seed not in last)][done:]
        begin = done + 1 - len(set(last) - set(meeting))  # A seed that noticed it before runs in addition.
        for number, ran in enumerate(_ran(bench, mutant, order), begin):
            seen = judged_by_seed(ran)
            if seen is not None:
                self._note(mutant, SEEDS, *seen)
                return
            others += number > 0 and ran.digest != without.digest(ran.seed)
            if number and number % SEEDS_A_LINE == 0:
                self._note(mutant, SEEDS, GOING, _seeds_text(number, number, others))
        self._note(mutant, SEEDS, SURVIVES, _seeds_text(len(chosen), len(meeting), others))

    def _note(self, mutant: Mutant, stage: str, result: str, by: str) -> None:
        row = Row(mutant.id, stage, result, by, mutant.digest, self._scope(mutant, stage), self._commit)
        with self._writing:
            ledger.append(row, self._book)
            self._known[row.place] = row
            if result != GOING:
                print(f"{mutant.id}: {result}{f' by {by}' if by else ''}", flush=True)

    def _complain(self, text: str) -> None:
        with self._writing:
            self.trouble.append(text)
            print(text, flush=True)

    def _baseline(self, bench: Workbench) -> Baseline:
        pool = bench.pool(FIRST_SEED, OTHER_SEEDS)
        code = digest_of((*folders_of_sources(self._root), SIMULATION), self._root)
        found = baseline(bench, self._every, pool, code, self._root / SEEDS_WITHOUT)
        for seed in found.failing:
            self._complain(f"fails without a mutant, and is left out: seed {seed}")
        return found

    def _remembered(self) -> dict[str, list[str]]:
        """Returns, by test or range of seeds, the failures in this code without a mutant."""
        try:
            said = json.loads((self._root / BASELINE).read_text())
        except (OSError, ValueError):
            return {}
        found: dict[str, list[str]] = said["failed"] if said["code"] == self._code else {}
        return found

    def _remember(self, failed: Mapping[str, list[str]]) -> None:
        path = self._root / BASELINE
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"code": self._code, "failed": {**self._remembered(), **failed}}))


def _flawed(test: str) -> str:
    return f"fails without a mutant, and is left out: {test}"


def _needs_kafka(path: str) -> bool:
    """Returns whether a test needs Kafka. Such tests take a minute each and come last."""
    return path.startswith("tests/contract/")


def _ran(bench: Workbench, mutant: Mutant, seeds: Sequence[int]) -> Iterator[SeedRan]:
    return bench.simulate(seeds, mutant) if seeds else iter(())


def _seeds_text(seeds: int, meeting: int, others: int) -> str:
    return f"{seeds} seeds, {meeting} meet it, {others} go otherwise"


def _noticed_by(row: Row | None) -> list[int]:
    """Returns the seed that noticed the mutant the last time, if any."""
    found = re.match(r"seed (\d+)", row.by) if row is not None else None
    return [int(found[1])] if found else []


def _seeds_of(row: Row | None) -> float:
    """Returns the number of seeds that did not notice the mutant. A noticed one counts as more than all: it comes
    last."""
    return math.inf if row is not None and row.result in NOTICED else _numbers(row)[0] if row is not None else 0


def _numbers(row: Row) -> tuple[int, int, int]:
    """Returns the numbers that _seeds_text wrote into the row; zeros for another text."""
    found = re.fullmatch(r"(\d+) seeds, (\d+) meet it, (\d+) go otherwise", row.by)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


# ── The score ───────────────────────────────────────────────────────────────────────────────────────────────────────


def result_of(mutant: Mutant, rows: ledger.Rows, stage: str) -> str:
    row = rows.get((mutant.id, stage))
    if row is None or row.change != mutant.digest:
        return "equivalent" if mutant.equivalent else ""
    if mutant.equivalent and row.result == SURVIVES:
        return EQUIVALENT
    is_early = row.stage == SEEDS and row.result == SURVIVES and _numbers(row)[0] < SEEDS_ALL
    return GOING if is_early else row.result


def table(chosen: Sequence[Mutant], rows: ledger.Rows) -> str:
    lines = []
    for mutant in chosen:
        tested, seeded = (result_of(mutant, rows, stage) or "-" for stage in (TESTS, SEEDS))
        row = rows.get((mutant.id, TESTS))
        by = mutant.equivalent if tested == EQUIVALENT else row.by if row is not None else ""
        lines.append(f"{mutant.id:44} {tested:10} {seeded:10} {by}")
    return "\n".join((f"{'mutant':44} {'tests':10} {'seeds':10} by", *lines, "", score(chosen, rows)))


def score(chosen: Sequence[Mutant], rows: ledger.Rows) -> str:
    """Returns a text with the number of mutants that tests and seeds notice."""
    results = {stage: [result_of(mutant, rows, stage) for mutant in chosen] for stage in (TESTS, SEEDS)}
    kinds = Counter(kind_of(rows[mutant.id, TESTS].by) for mutant in chosen if _is_killed(mutant, rows))
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind)
    lines = []
    for stage, found in results.items():
        judged = [one for one in found if one and one not in (EQUIVALENT, BROKEN, GOING)]
        noticed = sum(one in NOTICED for one in judged)
        lines.append(f"{stage}: {noticed} of {len(judged)} that were judged; {len(chosen)} mutants")
    equivalent = sum(bool(mutant.equivalent) for mutant in chosen)
    beyond = sum(bool(mutant.seeds_cannot) for mutant in chosen)
    lines.append(f"by kind: {by_kind}; equivalent: {equivalent}; out of reach of seeds: {beyond}")
    if early := results[SEEDS].count(GOING):
        lines.append(f"not noticed yet, by fewer than {SEEDS_ALL} seeds: {early}")
    return "\n".join(lines)


def _is_killed(mutant: Mutant, rows: ledger.Rows) -> bool:
    return result_of(mutant, rows, TESTS) == KILLED


def chosen_of(every: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Returns the mutants with a named id prefix (P4, P4.1) or sentence; all if none is named."""
    return [one for one in every if not only or any(_is_meant(one, name) for name in only)]


def _is_meant(mutant: Mutant, name: str) -> bool:
    ids = (mutant.id, *mutant.sentences)
    return any(one == name or one.startswith((f"{name}-", f"{name}.")) for one in ids)


def main(given: Sequence[str] | None = None) -> int:
    asked = _arguments(given)
    every = mutants()
    chosen = chosen_of(every, asked.only)
    if not chosen:
        print(f"ONLY: {' '.join(asked.only)}: expected a mutant, a sentence, or a protocol: P4", file=sys.stderr)
        return 2
    run = Run(asked, chosen, Limits(), every=every)
    if asked.stage in (TESTS, "all"):
        run.stage(TESTS)
        run.confirm()
    if asked.stage in (SEEDS, "all") and asked.seeds:
        run.stage(SEEDS)
    ledger.tidy(mutant.id for mutant in every)
    rows = ledger.read()
    print(table(chosen, rows))
    open_ones = _open(chosen, rows)
    for text in (*run.trouble, *_outlived(chosen, rows), *open_ones):
        print(text)
    return 1 if run.trouble or open_ones else 0


def _outlived(chosen: Sequence[Mutant], rows: ledger.Rows) -> list[str]:
    """Returns the mutants that seeds did not notice, although they can."""
    found = ((mutant, rows.get((mutant.id, SEEDS))) for mutant in chosen if not mutant.seeds_cannot)
    return [f"{one.id}: no seed notices it: {row.by}" for one, row in found if row and row.result in (SURVIVES, GOING)]


def _open(chosen: Sequence[Mutant], rows: ledger.Rows) -> list[str]:
    """Returns the mutants that still need a test or must be rewritten."""
    texts: Mapping[str, str] = {SURVIVES: "no test notices it", BROKEN: "it is no mutant: it cannot be imported"}
    found = ((mutant, result_of(mutant, rows, TESTS)) for mutant in chosen)
    return [f"{mutant.id}: {texts[result]}: {mutant.breaks}" for mutant, result in found if result in texts]


def _arguments(given: Sequence[str] | None) -> Asked:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--stage", choices=(TESTS, SEEDS, "all"), default="all")
    parser.add_argument("--only", default="", help="mutants, sentences or protocols (P4), with blanks or commas")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that are worked on at the same time")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_ALL, help="seeds for each mutant, until the first that notices"
    )
    parser.add_argument("--again", action="store_true", help="judge anew what the ledger has")
    found = parser.parse_args(given)
    only = tuple(found.only.replace(",", " ").split())
    if found.jobs < 1 or found.seeds < 0:
        parser.error(f"jobs {found.jobs}, seeds {found.seeds}: expected 1 or more, and 0 or more")
    return Asked(found.stage, only, found.jobs, found.seeds, found.again)
