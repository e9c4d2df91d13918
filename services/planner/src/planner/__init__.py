"""Decides where each replica goes."""
