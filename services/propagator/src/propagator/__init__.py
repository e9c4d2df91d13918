"""Decides what must change in a cluster to make a placement true."""
