"""Engine processes: start, supervise, signal and end them."""
