"""What other programs answer, kept as cases beside the repository, and our code asked the same."""
