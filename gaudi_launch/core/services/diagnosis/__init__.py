"""Find the causes of a failed launch in its log."""
