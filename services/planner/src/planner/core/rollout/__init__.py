"""How a new template goes from cluster to cluster."""
