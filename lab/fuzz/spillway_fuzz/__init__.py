"""Gives wrong inputs to all code that reads foreign data. No input may cause a crash, a hang or large memory use."""
