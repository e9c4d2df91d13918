"""Member clusters: the door to a Kubernetes API, what is let in there, and what may be done."""
