"""Runs `make fuzz`: gives wrong inputs to every wire decoder and every gRPC method. See docs/security.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Only this script has this folder on its path. So the parts are imported by name, not by an import statement.
    sys.exit(import_module("spillway_fuzz.run").main())
