"""One node: its marks, its virtual node, its loan and the next step of the loan."""
