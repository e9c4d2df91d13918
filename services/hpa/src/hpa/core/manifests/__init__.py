"""What people's manifests ask for, or what is wrong with them."""
