"""How good the autoscaler's decisions are: queues, faults, restarts, modes, loops. Nothing here runs in production."""
