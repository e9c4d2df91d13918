"""Computes how many replicas the nodes of a cluster take. All services that decide on this use it. docs/adr/0014."""
