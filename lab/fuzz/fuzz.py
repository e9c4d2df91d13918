"""`make fuzz`: wrong inputs for every wire decoder and every gRPC method, counted. See docs/security.md."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # This folder is on the path of the script alone, so the parts are found by name and not by an import.
    sys.exit(import_module("spillway_fuzz.run").main())
