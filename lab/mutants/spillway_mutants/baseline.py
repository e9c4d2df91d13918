"""Seeds without any mutant: their ends, and which mutants they meet. Kept while the code is the same."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from .catalogue import Mutant
from .places import marked_text_by_file, mutants_outside_functions
from .workbench import SeedRan, Workbench


class Baseline:
    """pool: in the order of the program. unmarked: mutants that every seed meets."""

    def __init__(self, pool: Sequence[int], ran: Sequence[SeedRan], unmarked: Collection[str]) -> None:
        self._ran = {one.seed: one for one in ran}
        self._pool, self._unmarked = pool, unmarked

    @property
    def failing_seeds(self) -> list[int]:
        """They say nothing of a mutant, and are left out."""
        return [seed for seed in self._pool if self._ran[seed].failures or not self._ran[seed].ended]

    def trace_digest_of(self, seed: int) -> str:
        return self._ran[seed].digest

    def choose_seeds(self, mutant: str, count: int) -> list[int]:
        """So many: first those that meet the mutant, the most often for what they cost before all others."""
        usable = [seed for seed in self._pool if seed not in set(self.failing_seeds)]
        return sorted(usable, key=lambda seed: -self._times_met(mutant, seed) / self._ran[seed].records)[:count]

    def is_seed_useful(self, mutant: str, seed: int) -> bool:
        """Whether it is in the pool, holds without a mutant, and meets this one."""
        return seed in self._pool and seed not in self.failing_seeds and self.is_met_by_seed(mutant, seed)

    def is_met_by_seed(self, mutant: str, seed: int) -> bool:
        return self._times_met(mutant, seed) > 0

    def _times_met(self, mutant: str, seed: int) -> int:
        return 1 if mutant in self._unmarked else self._ran[seed].met.get(mutant, 0)


def run_baseline(bench: Workbench, mutants: Sequence[Mutant], pool: Sequence[int], code: str, path: Path) -> Baseline:
    """Runs those of the pool that are not known of this code, and writes a line as each ends.

    A mutant that is new since the first line was written has no marks: as far as is known, every seed meets it.
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
    """The places that were marked, and the seeds; a line that was cut off is none."""
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not lines or lines[0].get("code") != code:
        return {}, {}
    return lines[0]["marks"], {said["seed"]: SeedRan(**said) for said in lines[1:]}
