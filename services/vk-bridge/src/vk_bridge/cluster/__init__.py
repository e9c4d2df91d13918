"""What is asked of the API servers of an owner and its pools, and written there."""
