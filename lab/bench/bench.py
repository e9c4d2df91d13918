"""Runs `make bench`: measures the platform on real parts, and writes a table and build/bench.json.

See docs/benchmarks.md.
"""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Only this script has this folder on its path. So the parts are imported by name, not by an import statement.
    sys.exit(import_module("spillway_bench.run").main())
