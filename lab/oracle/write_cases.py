"""Writes cases.json.gz and not_modelled.txt anew; see README.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_oracle.committed").main())
