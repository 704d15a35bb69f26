"""The cache of compiled graphs: key, ledger, locks, pruning, transfer."""
