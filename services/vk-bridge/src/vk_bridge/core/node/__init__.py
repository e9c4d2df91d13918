"""One node: its register, its virtual node, its loan and the next step of it."""
