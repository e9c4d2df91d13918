"""Decides which lent nodes go back to their owners, and keeps what people declare of lending."""
