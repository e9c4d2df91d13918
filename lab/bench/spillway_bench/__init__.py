"""The parts of bench.py: the measurements, the platforms they run on, and the output."""
