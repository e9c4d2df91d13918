"""Acts without a request: takes replicas back, tries again, moves, rolls out, and reports headroom."""
