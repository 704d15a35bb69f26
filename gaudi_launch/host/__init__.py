"""What this machine is: cards, NUMA nodes, CPUs, driver; read from sysfs and hl-smi, never changed."""
