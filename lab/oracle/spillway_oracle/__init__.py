"""The planner's feasibility against the Kubernetes scheduler's own plugins. See ../README.md."""
