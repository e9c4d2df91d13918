"""Which nodes are lent: how long each is idle, who needs it, what is wanted of it."""
