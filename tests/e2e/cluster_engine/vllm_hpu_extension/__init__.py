"""Its files tell the launcher that this is the extension of 1.22."""
