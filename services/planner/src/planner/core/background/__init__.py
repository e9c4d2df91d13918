"""What the planner does without a request: takes back, tries again, moves, rolls out, tells headroom."""
