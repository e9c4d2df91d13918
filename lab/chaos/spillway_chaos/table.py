"""Sums up the rounds of each row: as a table for people, and as JSON for programs."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from spillway_local.tools import exclusive_lock

from .ledger import KINDS, LENDING_KINDS, finding_count_by_kind
from .rounds import Round
from .rows import Row

_WIDTH = 200
_COUNTED = (*KINDS, *(kind for kind in LENDING_KINDS if kind not in KINDS))


@dataclass(slots=True)
class RowResult:
    row: Row
    rounds: list[Round] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return bool(self.rounds) and all(one.is_good for one in self.rounds)

    def as_json(self) -> dict[str, Any]:
        totals = finding_count_by_kind(finding for one in self.rounds for finding in one.findings)
        return {
            "row": self.row.name,
            "what": self.row.what,
            "rounds": sum(one.times for one in self.rounds),
            "answered": sum(one.answered for one in self.rounds),
            **{kind: totals[kind] for kind in _COUNTED},
            "in_trouble": sum(1 for one in self.rounds if one.trouble),
            "converged_p50_s": _percentile([one.seconds for one in self.rounds], 50),
            "converged_max_s": _percentile([one.seconds for one in self.rounds], 100),
            "broken_p50_s": _percentile([one.broken_seconds for one in self.rounds], 50),
            "no_planner_p50_s": _percentile([one.gap_seconds for one in self.rounds], 50),
            "no_planner_max_s": _percentile([one.gap_seconds for one in self.rounds], 100),
            "claims": dict(sum((Counter(one.claims) for one in self.rounds), Counter[str]())),
            "claims_from_another": dict(sum((Counter(one.moves) for one in self.rounds), Counter[str]())),
            "failed": [
                {"seed": one.seed, "what": one.what, "trouble": one.trouble, "findings": [f.what for f in one.findings]}
                for one in self.rounds
                if not one.is_good
            ],
        }


def print_table(results: Sequence[RowResult]) -> None:
    table = Table(title="chaos: what was broken, how often, what was lost")
    for head in ("row", "rounds", "requests", *_COUNTED, "in trouble"):
        table.add_column(head, justify="left" if head == "row" else "right", no_wrap=True)
    for head in ("broken p50", "right again p50", "max", "no planner p50", "max"):
        table.add_column(f"{head}, s", justify="right")
    for result in results:
        entry = result.as_json()
        cells = [entry[name] for name in ("row", "rounds", "answered", *_COUNTED, "in_trouble", "broken_p50_s")]
        cells += [entry[f"{what}_{rank}_s"] for what in ("converged", "no_planner") for rank in ("p50", "max")]
        table.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console(width=_WIDTH).print(table)


def as_markdown(file: Path) -> str:
    """Returns the rows of a results file as Markdown, for docs/chaos.md."""
    heads = (
        "row",
        "rounds",
        "requests",
        *_COUNTED,
        "right again after p50, max",
        "without a planner p50, max",
        "commit",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 2) + "|---|"]
    for entry in json.loads(file.read_text())["rows"].values():
        cells = [entry["row"], entry["rounds"], entry["answered"], *(entry.get(kind, "–") for kind in _COUNTED)]
        cells += [
            f"{entry[f'{what}_p50_s']:.1f}, {entry[f'{what}_max_s']:.1f} s" for what in ("converged", "no_planner")
        ]
        lines.append("| " + " | ".join(map(str, (*cells, entry["on"]["commit"]))) + " |")
    return "\n".join(lines)


def write_results(file: Path, results: Sequence[RowResult], facts: Mapping[str, str]) -> None:
    """Writes rows to the results file. Rows of earlier runs stay until they are run again. facts: of the machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = {result.row.name: result.as_json() | {"on": dict(facts)} for result in results}
    with exclusive_lock(file.with_suffix(".lock")):
        before = json.loads(file.read_text())["rows"] if file.exists() else {}
        file.write_text(json.dumps({"rows": before | rows}, indent=2) + "\n")


def _percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile by nearest rank; 0 without values."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)], 2) if ordered else 0.0
