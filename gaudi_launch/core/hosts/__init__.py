"""Other machines: inventory, ssh, plans over several hosts."""
