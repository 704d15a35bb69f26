"""The search for a bucket list that covers everything and compiles little."""
