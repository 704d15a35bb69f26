"""Several models behind one OpenAI address, by HAProxy and a local answerer."""
