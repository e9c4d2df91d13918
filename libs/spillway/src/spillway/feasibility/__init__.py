"""What the nodes of a cluster take: judged alike by all services that decide on it. docs/adr/0014."""
