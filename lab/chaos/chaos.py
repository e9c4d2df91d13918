"""`make chaos`: breaks one thing after another on real parts, and counts what was lost. See docs/chaos.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_chaos.run").main())
