"""Facts of a machine: cards, NUMA nodes, CPUs, driver.

Read from sysfs and hl-smi, never changed.
"""
