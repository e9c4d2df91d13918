"""The checks of `spillway doctor`: asking, pages and cluster_visits collect facts, and the other modules judge them."""
