"""Cards: table, selection, power limits, snapshots."""
