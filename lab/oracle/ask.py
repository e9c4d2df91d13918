"""Both answers to one case, in full: `python lab/oracle/ask.py build/differential/promises-too-much.json`."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_oracle.ask").main())
