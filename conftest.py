"""What holds for every test: no example is failed for being slow on a busy machine; timings belong to make bench."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
