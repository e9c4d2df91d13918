"""Wrong inputs for everything that reads what others wrote: no crash, no hang, no memory that one input can ask for."""
