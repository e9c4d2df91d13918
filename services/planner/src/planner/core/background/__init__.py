"""What the planner does with no request: take-backs, tries, moves, returns, rollouts, headroom."""
