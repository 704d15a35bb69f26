"""Programs that run inside pods, in images that do not have this package: each one file, standard library only."""
