"""What several test modules share: machines, stand-ins, data."""
