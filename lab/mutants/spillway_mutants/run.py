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
from .baseline import Baseline, run_baseline
from .catalogue import ROOT, Mutant, Stale, path_of_test, read_mutants
from .judging import Unjudged, failed_tests, is_final_result, judge_seed_run, judge_test_run, kind_of_test
from .ledger import BROKEN, EQUIVALENT, GOING, KILLED, NOTICED, SEEDS, SURVIVES, TESTS, Row
from .workbench import (
    SOURCES,
    Limits,
    NotRun,
    SeedRan,
    Workbench,
    digest_of_files,
    folders_of_sources,
    last_line,
    short_commit_id,
)

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
        self._known, self._commit = ledger.read_rows(book), short_commit_id(root)
        self._code = digest_of_files(WHOLE, root)
        self._scopes: dict[tuple[str, str], str] = {}
        self._writing = threading.Lock()
        self._flaws = [
            name
            for name, failed in self._read_failures_without_mutant().items()
            if failed and not name.startswith("seeds:")
        ]
        self.trouble = list(map(_flawed_test_text, self._flaws))

    def current_row(self, mutant: Mutant, stage: str) -> Row | None:
        """Returns the row of the mutant in its present form and for the present code; None if there is none."""
        known = self._known.get((mutant.id, stage))
        same = known is not None and (known.change, known.scope) == (
            mutant.change_digest,
            self._scope_digest(mutant, stage),
        )
        return known if same else None

    def _scope_digest(self, mutant: Mutant, stage: str) -> str:
        """Returns the digest from the first call: the copy is from then, even if files change during a run."""
        place = (mutant.id, stage)
        if place not in self._scopes:
            others = (SIMULATION,) if stage == SEEDS else tuple(map(path_of_test, mutant.tests))
            self._scopes[place] = digest_of_files((mutant.file, *others), self._root)
        return self._scopes[place]

    def mutants_to_judge(self, stage: str) -> list[Mutant]:
        found = []
        for mutant in self._chosen:
            known = self.current_row(mutant, stage)  # Call it in any case, so that the digest is of now.
            row = None if self._asked.again else known
            if stage == SEEDS and (mutant.seeds_cannot or self._is_broken(mutant) or self._has_more_seeds(mutant)):
                continue
            if row is None or row.by in self._flaws or self._needs_more_seeds(row):
                found.append(mutant)
        if stage == SEEDS:
            return sorted(found, key=lambda mutant: _seeds_survived(self._last_row(mutant, SEEDS)))
        return sorted(found, key=lambda mutant: any(_needs_kafka(test) for test in mutant.tests))

    def _last_row(self, mutant: Mutant, stage: str) -> Row | None:
        """Returns the last row of the mutant in its present form, for any code."""
        row = self._known.get((mutant.id, stage))
        return row if row is not None and row.change == mutant.change_digest else None

    def _has_more_seeds(self, mutant: Mutant) -> bool:
        """Returns whether an earlier run had more seeds. Fewer seeds prove less, so such a mutant needs as many
        again."""
        row = self._last_row(mutant, SEEDS)
        return row is not None and row.result not in NOTICED and _parse_seeds_text(row)[0] > self._asked.seeds

    def _is_broken(self, mutant: Mutant) -> bool:
        row = self._known.get((mutant.id, TESTS))
        return row is not None and row.result == BROKEN

    def _needs_more_seeds(self, row: Row) -> bool:
        """Returns whether a row needs more seeds, also when a longer run was ended before this run's number of
        seeds."""
        if row.stage == SEEDS and row.result in (SURVIVES, GOING):
            return _parse_seeds_text(row)[0] < self._asked.seeds
        return not is_final_result(row.result)

    def run_stage(self, stage: str) -> None:
        todo = self.mutants_to_judge(stage)
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
                self._without = self._run_baseline(benches[0])
            threads = [
                threading.Thread(target=self._judge_waiting_mutants, args=(bench, waiting, stage)) for bench in benches
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for bench in benches:
                bench.close()

    def _judge_waiting_mutants(self, bench: Workbench, waiting: "queue.SimpleQueue[Mutant]", stage: str) -> None:
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
                self._note_trouble(f"{mutant.id}: not judged: {error}")

    def _judge_by_tests(self, bench: Workbench, mutant: Mutant) -> None:
        with bench.apply_mutant(mutant):
            result, by = judge_test_run(bench.run_tests(mutant.tests, tuple(self._flaws)))
            # If a test failed by itself, it ran with the mutant. Its pass without the mutant shows that.
            why = "" if result == KILLED and "::" in by else bench.why_import_fails(mutant)
        if result == KILLED and by in self._flaws:
            raise Unjudged(f"{by} fails without it, too, and cannot be left out")
        self._note_result(mutant, TESTS, *((BROKEN, why) if why else (result, by)))

    def confirm_killing_tests(self) -> None:
        """Checks that tests which noticed a mutant pass without it. Mutants of the other tests are judged again."""
        while killers := self._unconfirmed_tests():
            with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
                bench = Workbench(Path(folder), self._limits, self._root)
                print(f"without a mutant: {len(killers)} tests that noticed one", flush=True)
                ran = bench.run_tests(killers, first=False)
            failed = failed_tests(ran.output)
            if ran.code is None or (ran.code and not failed):
                raise SystemExit(f"without a mutant: pytest ended with {ran.code}: {last_line(ran.output)}")
            self._write_failures_without_mutant({name: ["fails"] if name in failed else [] for name in killers})
            for name in failed:
                self._flaws.append(name)
                self._note_trouble(_flawed_test_text(name))
            if not failed:
                return
            self.run_stage(TESTS)

    def _unconfirmed_tests(self) -> list[str]:
        """Returns tests that noticed a mutant and have no known result without a mutant in this code."""
        known = self._read_failures_without_mutant()
        rows = (self.current_row(mutant, TESTS) for mutant in self._chosen)
        return sorted({row.by for row in rows if row is not None and row.result == KILLED} - known.keys())

    def _judge_by_seeds(self, bench: Workbench, mutant: Mutant, without: Baseline) -> None:
        """Judges a mutant by seeds. Seeds that do not meet it end as without it: they count but are not run."""
        row = None if self._asked.again else self.current_row(mutant, SEEDS)
        _, done, others = _parse_seeds_text(row) if row is not None else (0, 0, 0)
        chosen = without.choose_seeds(mutant.id, self._asked.seeds)
        meeting = [seed for seed in chosen if without.is_met_by_seed(mutant.id, seed)]
        last = [
            seed
            for seed in _seed_that_noticed(self._last_row(mutant, SEEDS))
            if without.is_seed_useful(mutant.id, seed)
        ]
        order = [*last, *(seed for seed in meeting if seed not in last)][done:]
        begin = done + 1 - len(set(last) - set(meeting))  # A seed that noticed it before runs in addition.
        for number, ran in enumerate(_run_seeds(bench, mutant, order), begin):
            seen = judge_seed_run(ran)
            if seen is not None:
                self._note_result(mutant, SEEDS, *seen)
                return
            others += number > 0 and ran.digest != without.trace_digest_of(ran.seed)
            if number and number % SEEDS_A_LINE == 0:
                self._note_result(mutant, SEEDS, GOING, _seeds_text(number, number, others))
        self._note_result(mutant, SEEDS, SURVIVES, _seeds_text(len(chosen), len(meeting), others))

    def _note_result(self, mutant: Mutant, stage: str, result: str, by: str) -> None:
        row = Row(mutant.id, stage, result, by, mutant.change_digest, self._scope_digest(mutant, stage), self._commit)
        with self._writing:
            ledger.append_row(row, self._book)
            self._known[row.mutant_and_stage] = row
            if result != GOING:
                print(f"{mutant.id}: {result}{f' by {by}' if by else ''}", flush=True)

    def _note_trouble(self, text: str) -> None:
        with self._writing:
            self.trouble.append(text)
            print(text, flush=True)

    def _run_baseline(self, bench: Workbench) -> Baseline:
        pool = bench.seed_pool(FIRST_SEED, OTHER_SEEDS)
        code = digest_of_files((*folders_of_sources(self._root), SIMULATION), self._root)
        found = run_baseline(bench, self._every, pool, code, self._root / SEEDS_WITHOUT)
        for seed in found.failing_seeds:
            self._note_trouble(f"fails without a mutant, and is left out: seed {seed}")
        return found

    def _read_failures_without_mutant(self) -> dict[str, list[str]]:
        """Returns, by test or range of seeds, the failures in this code without a mutant."""
        try:
            said = json.loads((self._root / BASELINE).read_text())
        except (OSError, ValueError):
            return {}
        found: dict[str, list[str]] = said["failed"] if said["code"] == self._code else {}
        return found

    def _write_failures_without_mutant(self, failed: Mapping[str, list[str]]) -> None:
        path = self._root / BASELINE
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"code": self._code, "failed": {**self._read_failures_without_mutant(), **failed}}))


def _flawed_test_text(test: str) -> str:
    return f"fails without a mutant, and is left out: {test}"


def _needs_kafka(path: str) -> bool:
    """Returns whether a test needs Kafka. Such tests take a minute each and come last."""
    return path.startswith("tests/contract/")


def _run_seeds(bench: Workbench, mutant: Mutant, seeds: Sequence[int]) -> Iterator[SeedRan]:
    return bench.simulate_seeds(seeds, mutant) if seeds else iter(())


def _seeds_text(seeds: int, meeting: int, others: int) -> str:
    return f"{seeds} seeds, {meeting} meet it, {others} go otherwise"


def _seed_that_noticed(row: Row | None) -> list[int]:
    """Returns the seed that noticed the mutant the last time, if any."""
    found = re.match(r"seed (\d+)", row.by) if row is not None else None
    return [int(found[1])] if found else []


def _seeds_survived(row: Row | None) -> float:
    """Returns the number of seeds that did not notice the mutant. A noticed one counts as more than all: it comes
    last."""
    return (
        math.inf if row is not None and row.result in NOTICED else _parse_seeds_text(row)[0] if row is not None else 0
    )


def _parse_seeds_text(row: Row) -> tuple[int, int, int]:
    """Returns the numbers that _seeds_text wrote into the row; zeros for another text."""
    found = re.fullmatch(r"(\d+) seeds, (\d+) meet it, (\d+) go otherwise", row.by)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


# ── The score ───────────────────────────────────────────────────────────────────────────────────────────────────────


def result_of(mutant: Mutant, rows: ledger.Rows, stage: str) -> str:
    row = rows.get((mutant.id, stage))
    if row is None or row.change != mutant.change_digest:
        return "equivalent" if mutant.equivalent else ""
    if mutant.equivalent and row.result == SURVIVES:
        return EQUIVALENT
    is_early = row.stage == SEEDS and row.result == SURVIVES and _parse_seeds_text(row)[0] < SEEDS_ALL
    return GOING if is_early else row.result


def results_table(chosen: Sequence[Mutant], rows: ledger.Rows) -> str:
    lines = []
    for mutant in chosen:
        tested, seeded = (result_of(mutant, rows, stage) or "-" for stage in (TESTS, SEEDS))
        row = rows.get((mutant.id, TESTS))
        by = mutant.equivalent if tested == EQUIVALENT else row.by if row is not None else ""
        lines.append(f"{mutant.id:44} {tested:10} {seeded:10} {by}")
    return "\n".join((f"{'mutant':44} {'tests':10} {'seeds':10} by", *lines, "", score_text(chosen, rows)))


def score_text(chosen: Sequence[Mutant], rows: ledger.Rows) -> str:
    """Returns a text with the number of mutants that tests and seeds notice."""
    results = {stage: [result_of(mutant, rows, stage) for mutant in chosen] for stage in (TESTS, SEEDS)}
    kinds = Counter(kind_of_test(rows[mutant.id, TESTS].by) for mutant in chosen if _is_killed(mutant, rows))
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


def choose_mutants(every: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Returns the mutants with a named id prefix (P4, P4.1) or sentence; all if none is named."""
    return [one for one in every if not only or any(_is_mutant_named(one, name) for name in only)]


def _is_mutant_named(mutant: Mutant, name: str) -> bool:
    ids = (mutant.id, *mutant.sentences)
    return any(one == name or one.startswith((f"{name}-", f"{name}.")) for one in ids)


def main(given: Sequence[str] | None = None) -> int:
    asked = _parse_arguments(given)
    every = read_mutants()
    chosen = choose_mutants(every, asked.only)
    if not chosen:
        print(f"ONLY: {' '.join(asked.only)}: expected a mutant, a sentence, or a protocol: P4", file=sys.stderr)
        return 2
    run = Run(asked, chosen, Limits(), every=every)
    if asked.stage in (TESTS, "all"):
        run.run_stage(TESTS)
        run.confirm_killing_tests()
    if asked.stage in (SEEDS, "all") and asked.seeds:
        run.run_stage(SEEDS)
    ledger.rewrite_sorted(mutant.id for mutant in every)
    rows = ledger.read_rows()
    print(results_table(chosen, rows))
    open_ones = _open_mutant_texts(chosen, rows)
    for text in (*run.trouble, *_survivor_texts(chosen, rows), *open_ones):
        print(text)
    return 1 if run.trouble or open_ones else 0


def _survivor_texts(chosen: Sequence[Mutant], rows: ledger.Rows) -> list[str]:
    """Returns the mutants that seeds did not notice, although they can."""
    found = ((mutant, rows.get((mutant.id, SEEDS))) for mutant in chosen if not mutant.seeds_cannot)
    return [f"{one.id}: no seed notices it: {row.by}" for one, row in found if row and row.result in (SURVIVES, GOING)]


def _open_mutant_texts(chosen: Sequence[Mutant], rows: ledger.Rows) -> list[str]:
    """Returns the mutants that still need a test or must be rewritten."""
    texts: Mapping[str, str] = {SURVIVES: "no test notices it", BROKEN: "it is no mutant: it cannot be imported"}
    found = ((mutant, result_of(mutant, rows, TESTS)) for mutant in chosen)
    return [f"{mutant.id}: {texts[result]}: {mutant.breaks}" for mutant, result in found if result in texts]


def _parse_arguments(given: Sequence[str] | None) -> Asked:
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
