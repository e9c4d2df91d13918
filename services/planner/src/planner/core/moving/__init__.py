"""Why and when replicas move that nobody asked for by name, and what holds them."""
