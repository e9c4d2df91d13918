"""What is known of loans and needs; which nodes are recalled for whom; what people declare."""
