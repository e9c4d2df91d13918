"""Programs with one line changed each, and what notices it. See ../README.md."""
