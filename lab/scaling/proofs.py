"""Runs `make scaling-faults`: crashes at each record, wrong and late samples with a lost cluster, and loops at rest."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # The log in memory comes from hpa's own tests.
    sys.path.append(str(Path(__file__).resolve().parents[2] / "services/hpa/tests"))
    sys.exit(import_module("spillway_scaling.proofs").main())
