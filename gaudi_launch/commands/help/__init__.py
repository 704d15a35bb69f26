"""Questions with the commands that answer them."""
