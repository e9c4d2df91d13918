"""What is wanted, what is there, and the one next step from the one to the other. Pure."""
