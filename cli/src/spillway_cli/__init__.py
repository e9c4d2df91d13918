"""The spillway command."""
