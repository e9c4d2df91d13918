"""Decides requests and answers them."""
