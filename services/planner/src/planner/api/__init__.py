"""Serves the requests of callers: reads and checks them, asks clusters, and answers. The decisions are in core/."""
