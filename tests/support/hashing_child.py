"""A stand-in for the child that hashes a large file.

It prints what is not an answer, reports progress every half second, then the file is done.
"""

import json
import os
import sys
import time

sys.stdin.readline()
print("noise")
print("[1]")
for at in range(6):
    print(json.dumps({"hashing": "model.safetensors", "at": at, "pid": os.getpid()}), flush=True)
    time.sleep(0.5)
print(json.dumps({"done": "model.safetensors"}), flush=True)
