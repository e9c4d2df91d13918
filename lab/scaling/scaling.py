"""Runs `make scaling`: compares the autoscaler's decisions on queues with KEDA's, and writes build/scaling.json."""

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module("spillway_scaling.run").main())
