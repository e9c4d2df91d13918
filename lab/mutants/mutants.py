"""`make mutants`: one line changed each, its closest tests, then seeds of the simulation. See README.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_mutants.run").main())
