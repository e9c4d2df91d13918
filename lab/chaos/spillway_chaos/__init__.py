"""Breaks one part of a running platform at a time, and holds what was acknowledged against what is there."""
