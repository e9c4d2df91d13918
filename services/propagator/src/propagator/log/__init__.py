"""Writes to the log what a cluster shows, and proves that this process has read the log."""
