"""`make simulate`: runs seeds of the simulation; a summary and build/simulation.json. See docs/simulation.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_simulation.run").main())
