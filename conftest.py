"""What holds for every test: no example is failed for being slow on a busy machine; timings belong to make bench.

`make test` tries the same examples each time, so that who changed nothing breaks nothing; `make properties`, new ones.
"""

from hypothesis import HealthCheck, settings

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("repeatable", ANY_SPEED, derandomize=True, database=None)
settings.register_profile("exploring", ANY_SPEED, derandomize=False)
settings.load_profile("repeatable")
