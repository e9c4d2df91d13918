"""Reads and checks manifests and policies."""
