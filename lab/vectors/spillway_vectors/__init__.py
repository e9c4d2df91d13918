"""Compares our code's answers with other programs' answers, which are kept as cases beside the repository."""
