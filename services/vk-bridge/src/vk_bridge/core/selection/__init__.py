"""Decides which nodes are lent: how long a node is idle, which pods need it, and which loan is desired."""
