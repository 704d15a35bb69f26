"""The search for a bucket list that covers every shape with few graphs."""
