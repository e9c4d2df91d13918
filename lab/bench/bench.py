"""`make bench`: measures the platform on real parts; a table and build/bench.json. See docs/benchmarks.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_bench.run").main())
