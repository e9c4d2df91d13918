"""Keeps the state of loans and needs, decides which nodes are recalled, and answers what people declare."""
