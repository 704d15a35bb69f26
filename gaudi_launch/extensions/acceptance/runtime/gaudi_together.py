"""Runs programs at the same time, and writes their results as a JSON list.

The list of programs is the JSON on stdin: argv, env, cwd of each. They are in the process group of
this program, so they end with it. Only the standard library here.
"""

import json
import subprocess
import sys
import tempfile

# bytes of the end of each output
MOST = 1 << 16


def main() -> None:
    programs = json.load(sys.stdin)
    started = []
    for each in programs:
        # open until its end is read
        output = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                each["argv"],
                env=each["env"],
                cwd=each["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            output.write(str(error).encode())
            process = None
        started.append((process, output))
    results = []
    for process, output in started:
        code = 127 if process is None else process.wait()
        output.seek(max(0, output.seek(0, 2) - MOST))
        results.append({"code": code, "output": output.read().decode("utf-8", "replace")})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
