"""One plan, many homes: scripts, units, containers and charts. One file a target; nothing here starts anything."""
