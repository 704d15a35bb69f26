#!/usr/bin/env bash
# head
# more
set -euo pipefail


words=(
    run
    --rm
    --init
    --name svc
    --read-only
    --tmpfs=/tmp
    --cap-drop=ALL
    --security-opt=no-new-privileges
    --shm-size=2g
    --network=host
    --stop-timeout=30
    image
)
exec docker "${words[@]}" "$@"
