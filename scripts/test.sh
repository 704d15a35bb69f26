#!/usr/bin/env bash
# Runs all tests in an environment of their own. Arguments go to pytest: scripts/test.sh -m "not e2e"
# For the edit loop: scripts/test.sh -m quick (nothing slow by tests/data/durations.json, no real engine).
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if [ ! -x .venv/bin/python ]; then
    echo "== Making the environment .venv"
    "$python" -m venv .venv
fi
if ! [ .venv/installed -nt pyproject.toml ]; then
    echo "== Installing gaudi-launch and what its tests need"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,webui]'
    touch .venv/installed
fi
# each of the many interpreters that the tests start would else compile everything anew
unset PYTHONDONTWRITEBYTECODE
echo "== Running the tests (real engines on the CPU are among them; -m 'not e2e' leaves them out)"
# many tests wait for processes: more workers than cores; the quick ones do not
workers=4
case " $* " in
    *" quick "*) workers=2 ;;
esac
# a file stays on one worker
exec .venv/bin/python -m pytest --numprocesses "$workers" --dist loadfile --no-loadscope-reorder "$@"
