"""Breaks one part of a running platform at a time, and compares acknowledged requests with the clusters' objects."""
