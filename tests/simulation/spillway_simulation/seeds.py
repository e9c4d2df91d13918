"""Seeds that failed once, kept, with what each one taught. docs/simulation.md tells the longer stories."""

KEPT: dict[int, str] = {}
"""By seed: what was wrong, in a sentence. The seed may draw another script since the simulation has grown."""
