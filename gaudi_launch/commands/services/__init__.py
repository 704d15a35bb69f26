"""Services of this user: list, show, wait for, explain, stop."""
