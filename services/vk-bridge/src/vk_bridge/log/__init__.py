"""What is said in the log: records of loans and of how nodes are used."""
