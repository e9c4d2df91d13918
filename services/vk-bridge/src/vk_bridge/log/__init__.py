"""Publishes records of loans and of the use of nodes."""
