"""What manifests and policies ask for, or what is wrong with them."""
