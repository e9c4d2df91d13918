"""The decisions of a Kubernetes control plane as plain state and functions: no IO, clock or randomness of its own."""
