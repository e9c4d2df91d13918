"""Prints the planner's and the oracle's answers to one case in full."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from .cases import read_case
from .oracle import Oracle
from .verdicts import request_of_case, truth_of_answers, verdict_on_case


def main() -> int:
    parser = argparse.ArgumentParser(prog="ask", description=__doc__)
    parser.add_argument("file", type=Path, help="a case, or a record that has one under `case`")
    found = json.loads(parser.parse_args().file.read_text())
    case = read_case(found.get("case", found))
    with Oracle() as oracle:
        placed = oracle.send_request(request_of_case(case)).placed
    result = verdict_on_case(case, truth_of_answers(case, placed))
    refused = {node: {"plugin": why.plugin, "reasons": why.reasons} for node, why in placed[-1].refused.items()}
    print(json.dumps(asdict(result) | {"refused": refused}, indent=1))
    return int(result.is_disagreement)
