"""Decides which lent nodes go back to their owners, and keeps the declarations of lending."""
