"""Present in 1.22 and later."""
