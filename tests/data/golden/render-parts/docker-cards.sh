#!/usr/bin/env bash
# shellcheck disable=SC1003,SC1112,SC2016,SC2088
# head
# more
set -euo pipefail

: "${VLLM_API_KEY:?}"
if ! docker image inspect 'own/image:1$x' > /dev/null 2>&1; then
    docker build --tag 'own/image:1$x' - << 'DOCKERFILE'
FROM x
RUN y$z
DOCKERFILE
fi
mkdir -p -- /write,x '/write y'
mkdir -p -- /f
printf %s 'text'"'"'s
' > '/f/a b'

words=(
    run
    --rm
    --init
    --name svc
    --runtime=habana
    --cap-add=sys_nice
    --ipc=host
    --device=/dev:/dev
    -v /dev:/dev
    --cap-add=SYS_PTRACE
    --cap-add=IPC_LOCK
    -p 10.0.0.1:8000:80
    -p 10.0.0.1:9000:90
    -v '/read only:/read only:ro'
    -v '/write,x:/in side'
    -v '/write y:/y'
    -e 'HABANA_VISIBLE_DEVICES=4,6'
    -e 'B=2$'
    -e 'A=quote "x"'
    -e HF_TOKEN
    -e VLLM_API_KEY
    -e https_proxy
    --cpuset-cpus=0-3
    --stop-timeout=30
    --ulimit=memlock=-1:-1
    --ulimit=nofile=65535:65535
    '--health-cmd=python3 -c '"'"'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5).close()'"'"' http://127.0.0.1:80/health'
    --health-start-period=1800s
    --health-retries=3
    --health-interval=10s
    --health-timeout=10s
    --entrypoint python3
    'own/image:1$x'
    -m e
    --name 'it'"'"'s $HOME'
    'a,b'
    100%
)
exec docker "${words[@]}" "$@"
