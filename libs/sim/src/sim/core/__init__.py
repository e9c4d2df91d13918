"""What a Kubernetes control plane decides, as plain state and functions: no IO, no clock, no randomness of its own."""
