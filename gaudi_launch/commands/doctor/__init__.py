"""Check this machine and put right what may be."""
