"""Follow, rotate and excerpt engine logs."""
