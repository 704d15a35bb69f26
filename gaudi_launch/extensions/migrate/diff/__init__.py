"""What changes between two engine releases."""
