"""A stand-in for the child that hashes a large file.

It reports progress every half second, then the file is done.
"""

import json
import sys
import time

sys.stdin.readline()
for at in range(6):
    print(json.dumps({"hashing": "model.safetensors", "at": at}), flush=True)
    time.sleep(0.5)
print(json.dumps({"done": "model.safetensors"}), flush=True)
