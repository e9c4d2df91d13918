"""The committed cases and the oracle's answers: written with the oracle, read and checked without it."""

import argparse
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from .cases import Case, seeded_case
from .oracle import Oracle
from .templates import FEATURES
from .verdicts import UNMODELLED, Truth, request_of_case, truth_of_answers, verdict_on_case

FOLDER = Path(__file__).resolve().parents[1]
CASES_FILE = FOLDER / "cases.json.gz"
NOT_MODELLED_FILE = FOLDER / "not_modelled.txt"
DIFFERING_FILE = FOLDER / "differing.txt"
FOUND_FOLDER = FOLDER / "found"
"""Cases in which planner and scheduler once differed, with the oracle's answer, as build/differential had them."""
PER_FEATURE = 60
PLAIN_ZEROS_PERCENT = 15
"""The largest percentage of a feature's cases in which no replica fits, because such cases prove little."""
_ENCODER = msgspec.json.Encoder(order="sorted")


class Committed(msgspec.Struct, frozen=True):
    name: str
    features: tuple[str, ...]
    case: msgspec.Raw
    truth: Truth


class _Body(msgspec.Struct, frozen=True):
    world: dict[str, list[dict[str, object]]]
    namespace: str
    template: dict[str, object]


_DECODER = msgspec.json.Decoder(tuple[Committed, ...])


def read_cases() -> Iterator[tuple[Case, Truth]]:
    for entry in _DECODER.decode(gzip.decompress(CASES_FILE.read_bytes())):
        body = msgspec.json.decode(entry.case, type=_Body)
        yield Case(body.world, body.namespace, body.template, entry.features, entry.name), entry.truth


def read_case_list(file: Path) -> dict[str, str]:
    """Returns the text of each case in a list file, by the case's name."""
    lines = file.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def write_case_lists() -> None:
    verdicts = {case.name: verdict_on_case(case, truth) for case, truth in read_cases()}
    not_modelled = {name: one.detail for name, one in verdicts.items() if one.kind == UNMODELLED}
    differing = {name: f"{one.kind}: {one.detail}" for name, one in verdicts.items() if one.is_disagreement}
    _write_case_list(NOT_MODELLED_FILE, "that the planner says it does not (wholly) model, and why", not_modelled)
    _write_case_list(DIFFERING_FILE, "in which planner and scheduler differ: work to be done", differing)
    print(f"{len(verdicts)} cases: {len(not_modelled)} not modelled, {len(differing)} differing")


def _write_case_list(file: Path, which: str, found: Mapping[str, str]) -> None:
    heading = (
        f"# Committed cases {which}. Written by `python lab/oracle/write_cases.py --lists`;\n"
        "# test_cases.py fails on a line too few or too many.\n"
    )
    file.write_text(heading + "".join(f"{name}: {text}\n" for name, text in sorted(found.items())))


def write_cases() -> None:
    """Writes the first cases by seed, until each feature has enough of them, with the oracle's answers."""
    chosen: list[Committed] = []
    have: Counter[str] = Counter()
    zeros: Counter[str] = Counter()
    with Oracle() as oracle:
        number = 0
        while any(have[feature] < PER_FEATURE for feature in FEATURES):
            case = seeded_case(number)
            number += 1
            about = case.main_feature
            if have[about] >= PER_FEATURE:
                continue
            truth = truth_of_answers(case, oracle.send_request(request_of_case(case)).placed)
            if not truth.most and zeros[about] >= PER_FEATURE * PLAIN_ZEROS_PERCENT // 100:
                continue
            have[about] += 1
            zeros[about] += not truth.most
            body = {"world": case.world, "namespace": case.namespace, "template": case.template}
            chosen.append(Committed(case.name, case.features, msgspec.Raw(_ENCODER.encode(body)), truth))
    CASES_FILE.write_bytes(gzip.compress(_ENCODER.encode(chosen), mtime=0))
    print(f"{len(chosen)} cases from {number} seeds, {CASES_FILE.stat().st_size} bytes: {CASES_FILE}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="write_cases", description=__doc__)
    parser.add_argument("--lists", action="store_true", help="only not_modelled.txt and differing.txt; needs no oracle")
    if not parser.parse_args().lists:
        write_cases()
    write_case_lists()
    return 0
