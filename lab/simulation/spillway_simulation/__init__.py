"""All services in one process in virtual time, with faults drawn from a seed. See docs/simulation.md."""
