"""Why things are where they are, and what would be otherwise."""
