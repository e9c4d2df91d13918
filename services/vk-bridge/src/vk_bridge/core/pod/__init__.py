"""Pods of a pool and their real ones: how one is made, mirrored, changed and deleted."""
