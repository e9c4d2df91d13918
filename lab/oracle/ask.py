"""Prints both answers to one case in full: `python lab/oracle/ask.py build/differential/promises-too-much.json`."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Only this script has this folder on its path. So the parts are imported by name, not by an import statement.
    sys.exit(import_module("spillway_oracle.ask").main())
