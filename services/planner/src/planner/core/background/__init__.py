"""Makes decisions without a request: takes replicas back, retries waiting ones, moves, rolls out, reports headroom."""
