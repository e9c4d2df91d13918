"""Runs mutants, which are programs with one changed line, to see if tests and seeds notice them. See ../README.md."""
