"""The parts of bench.py: what is measured, on which platform, and how it is shown."""
