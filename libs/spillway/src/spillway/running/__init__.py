"""A service as a process: its instances, their turns and steps, the log that they follow, and waiting requests."""
