"""Decides which idle nodes are lent, and what a pool sees of them."""
