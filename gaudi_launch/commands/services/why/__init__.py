"""The cause of a failed launch."""
