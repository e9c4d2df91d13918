"""Writes cases.json.gz, not_modelled.txt and differing.txt again; see README.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Only this script has this folder on its path. So the parts are imported by name, not by an import statement.
    sys.exit(import_module("spillway_oracle.committed").main())
