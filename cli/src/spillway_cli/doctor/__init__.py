"""The checks of `spillway doctor`: asking, pages and members collect facts, and the other modules judge them."""
