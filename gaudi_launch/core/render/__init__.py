"""One plan as scripts, units, containers and charts.

One file per target; nothing here starts anything.
"""
