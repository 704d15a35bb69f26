"""Commands, engines and targets that can be left out; none imports another."""
