"""What each request decides, and what it is answered."""
