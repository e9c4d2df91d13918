"""The command for restarts, faults and loops: prints tables and writes build/scaling-faults.json."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .damping import RESTS_AFTER, last_decision_step, random_ground
from .faults import Errors, Faults, errors_by_way
from .lending import LENDING_RESTS_AFTER, last_lending_step
from .restart import MANIFESTS, Restarts, crash_at_each_record

BUILD = Path("build/scaling-faults.json")
UNEVEN = {"as the others": 1.0, "idler": 0.3, "busier": 1.5}
"""The use of the lost cluster's pods in relation to other pods."""
COUNTS = [one.name for one in fields(Errors)]


def main() -> int:
    asked = _parse_arguments()
    with get_context("fork").Pool(asked.jobs) as pool:
        _print_progress(f"{asked.crashes} crashes each of {', '.join(MANIFESTS)}")
        found = pool.starmap(crash_at_each_record, [(kind, asked.crashes) for kind in MANIFESTS])
        crashed = dict(zip(MANIFESTS, found, strict=True))
        _print_progress(f"ten clusters, samples late, doubled and out of order, {asked.seeds} seeds")
        wrong = {
            pods: errors_summed_over_seeds(
                pool.starmap(errors_by_way, [(Faults(uneven=busier), seed + 1) for seed in range(asked.seeds)])
            )
            for pods, busier in UNEVEN.items()
        }
        _print_progress(f"constant load and capacity, {asked.loops} seeds")
        last = pool.map(_last_decision_of_seed, range(asked.loops), chunksize=16)
        _print_progress(f"the same while nodes are lent and recalled, {asked.loops} seeds")
        lending = pool.map(last_lending_step, range(asked.loops), chunksize=16)
    restless = [seed for seed, step in enumerate(last) if step > RESTS_AFTER]
    lending_restless = [seed for seed, step in enumerate(lending) if step > LENDING_RESTS_AFTER]
    print(
        "\n".join([*crashes_table(crashed), "", *faults_table(wrong), "", loops_line("constant load", last, restless)])
    )
    print(loops_line("constant load, nodes lent and recalled", lending, lending_restless))
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(_json_report(crashed, wrong, last, lending), indent=1) + "\n")
    return 1 if restless or lending_restless or any(found.differed for found in crashed.values()) else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=1000, help="records of each trace; one crash at each")
    parser.add_argument("--seeds", type=int, default=5, help="of the traces with faults")
    parser.add_argument("--loops", type=int, default=300, help="seeds under constant load")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=BUILD)
    return parser.parse_args()


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _last_decision_of_seed(seed: int) -> int:
    return last_decision_step(random_ground(seed), seed, RESTS_AFTER + 60)


def errors_summed_over_seeds(found: Sequence[dict[str, Errors]]) -> dict[str, Errors]:
    """Returns the errors summed over seeds, by way and by whether a cluster is lost."""
    return {name: Errors(*(sum(getattr(one[name], count) for one in found) for count in COUNTS)) for name in found[0]}


# ── The tables ──────────────────────────────────────────────────────────────────────────────────────────────────────


def crashes_table(found: dict[str, Restarts]) -> Iterator[str]:
    yield "| kind | crashes | decisions | of them decided otherwise afterwards |"
    yield "|---|---|---|---|"
    for kind, one in found.items():
        yield f"| {kind} | {one.boundaries} | {one.decisions} | {len(one.differed)} |"


def faults_table(found: dict[str, dict[str, Errors]]) -> Iterator[str]:
    yield "| the lost cluster's pods | way, clusters | " + " | ".join(name.replace("_", " ") for name in COUNTS) + " |"
    yield "|" + "---|" * (2 + len(COUNTS))
    for pods, by_way in found.items():
        for way, errors in by_way.items():
            yield f"| {pods} | {way} | " + " | ".join(f"{getattr(errors, name):,}" for name in COUNTS) + " |"


def loops_line(what: str, last: Sequence[int], restless: Sequence[int]) -> str:
    rested = max((step for seed, step in enumerate(last) if seed not in restless), default=0)
    ever = f"{len(restless)} of {len(last)} seeds never rest {list(restless)}"
    return f"{what}: {ever}; the others do by step {rested}"


def _json_report(
    crashed: dict[str, Restarts], wrong: dict[str, dict[str, Errors]], last: Sequence[int], lending: Sequence[int]
) -> Any:
    return {
        "crashes": {kind: asdict(found) for kind, found in crashed.items()},
        "faults": {pods: {way: asdict(one) for way, one in by_way.items()} for pods, by_way in wrong.items()},
        "last decisions": list(last),
        "last decisions, lendings and recalls": list(lending),
    }
