"""What `spillway doctor` looks at: finding out (asking, pages, members) and judging it, each check for itself."""
