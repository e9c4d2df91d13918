"""`make scaling-faults`: crashes at each record, wrong and late samples with a cluster lost, loops at rest."""

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("spillway_scaling.proofs").main())
