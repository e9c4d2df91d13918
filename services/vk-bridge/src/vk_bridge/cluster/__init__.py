"""Reads from and writes to the API servers of an owner cluster and its pools."""
