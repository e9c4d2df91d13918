"""Runs seeds without a mutant, and notes their results and the mutants that they meet. Kept until the code changes."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from .catalogue import Mutant
from .places import marked_text_by_file, mutants_outside_functions
from .workbench import SeedRan, Workbench


class Baseline:
    """The results of seeds without a mutant. pool: the seeds in their order. unmarked: mutants that all seeds meet."""

    def __init__(self, pool: Sequence[int], ran: Sequence[SeedRan], unmarked: Collection[str]) -> None:
        self._ran = {one.seed: one for one in ran}
        self._pool, self._unmarked = pool, unmarked

    @property
    def failing_seeds(self) -> list[int]:
        """Returns the seeds that fail without a mutant. They prove nothing about a mutant, so they are left out."""
        return [seed for seed in self._pool if self._ran[seed].failures or not self._ran[seed].ended]

    def trace_digest_of(self, seed: int) -> str:
        return self._ran[seed].digest

    def choose_seeds(self, mutant: str, count: int) -> list[int]:
        """Returns `count` seeds: first those that meet the mutant most often in relation to their cost."""
        usable = [seed for seed in self._pool if seed not in set(self.failing_seeds)]
        return sorted(usable, key=lambda seed: -self._times_met(mutant, seed) / self._ran[seed].records)[:count]

    def is_seed_useful(self, mutant: str, seed: int) -> bool:
        """Returns whether the seed is in the pool, passes without a mutant, and meets this mutant."""
        return seed in self._pool and seed not in self.failing_seeds and self.is_met_by_seed(mutant, seed)

    def is_met_by_seed(self, mutant: str, seed: int) -> bool:
        return self._times_met(mutant, seed) > 0

    def _times_met(self, mutant: str, seed: int) -> int:
        return 1 if mutant in self._unmarked else self._ran[seed].met.get(mutant, 0)


def run_baseline(bench: Workbench, mutants: Sequence[Mutant], pool: Sequence[int], code: str, path: Path) -> Baseline:
    """Runs the seeds of the pool that have no result for this code, and writes a line for each.

    A mutant that is newer than the file's first line has no mark. So every seed counts as meeting it.
    """
    marks, known = _read_known_seeds(path, code)
    missing = [seed for seed in pool if seed not in known]
    if missing:
        print(f"without a mutant: {len(missing)} of {len(pool)} seeds", flush=True)
        path.parent.mkdir(exist_ok=True)
        marks = marks or {one.id: _place_digest(one) for one in mutants}
        lines = [{"code": code, "marks": marks}, *map(asdict, known.values())]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        texts = marked_text_by_file([one for one in mutants if marks.get(one.id) == _place_digest(one)], bench.tree)
        with bench.replace_files(texts), path.open("a") as file:
            for ran in bench.simulate_seeds(missing):
                known[ran.seed] = ran
                file.write(json.dumps(asdict(ran)) + "\n")
                file.flush()
    new = {one.id for one in mutants if marks.get(one.id) != _place_digest(one)}
    unmarked = mutants_outside_functions(mutants, bench.tree) | new
    return Baseline(pool, [known[seed] for seed in pool], unmarked)


def _place_digest(mutant: Mutant) -> str:
    return sha256(f"{mutant.file}\0{mutant.old}\0{mutant.new}".encode()).hexdigest()[:12]


def _read_known_seeds(path: Path, code: str) -> tuple[dict[str, str], dict[int, SeedRan]]:
    """Returns (the marked places, the results by seed) of the file for this code. Skips a line that was cut off."""
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not lines or lines[0].get("code") != code:
        return {}, {}
    return lines[0]["marks"], {said["seed"]: SeedRan(**said) for said in lines[1:]}
