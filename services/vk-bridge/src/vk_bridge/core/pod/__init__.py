"""Pods of a pool and their real pods: how a real pod is made, mirrored, changed and deleted."""
