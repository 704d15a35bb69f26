"""From options to a started service: machine, engine, model, plan, start."""
