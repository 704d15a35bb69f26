"""The compiled-graph cache: key, ledger, prune, ship."""
