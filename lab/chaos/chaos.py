"""Runs `make chaos`: breaks one part after another of a real platform, and counts the losses. See docs/chaos.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Only this script has this folder on its path. So the parts are imported by name, not by an import statement.
    sys.exit(import_module("spillway_chaos.run").main())
