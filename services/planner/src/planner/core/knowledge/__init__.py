"""What is known of the fleet and its workloads, and what is kept of it between decisions."""
