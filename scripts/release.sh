#!/usr/bin/env bash
# Builds a release into a folder, and tries it: scripts/release.sh [FOLDER]
# An environment that has only this folder as its package index must install and run it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
python=${PYTHON:-python3}

version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' gaudi_launch/core/base/version.py)
tag=$(git describe --exact-match --tags 2>/dev/null || true)
if [ -n "$tag" ] && [ "$tag" != "v$version" ]; then
    echo "release: the tag is $tag, but the version is $version"
    exit 1
fi
if [ -n "$tag" ] && ! grep -q "^## $version" CHANGELOG.md; then
    echo "release: CHANGELOG.md has no part for $version"
    exit 1
fi

if [ -n "$tag" ] && ! grep -q "^Source = " pyproject.toml; then
    echo "release: [project.urls] of pyproject.toml has no Source"
    exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "== Building gaudi-launch $version into $folder"
rm -rf "$folder"
mkdir -p "$folder/upload" "$folder/index"
"$python" -m venv "$scratch/build"
"$scratch/build/bin/python" -m pip install --quiet --disable-pip-version-check build
"$scratch/build/bin/python" -m build --outdir "$folder/upload" . >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
"$scratch/build/bin/python" -m pip wheel --quiet --disable-pip-version-check --wheel-dir "$folder/index" "$folder"/upload/*.whl

echo "== Installing from $folder/index alone"
"$python" -m venv "$scratch/fresh"
"$scratch/fresh/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-index --find-links "$folder/index" gaudi-launch
index=$(cd "$folder/index" && pwd)
echo "   $(du -sh "$index" | cut -f1) of wheels"

echo "== Trying it"
# from another folder, so that the sources here are not found
gaudi="$scratch/fresh/bin/gaudi-launch"
cd "$scratch"
[ "$("$gaudi" --version)" = "gaudi-launch $version" ]
"$gaudi" docs --list >/dev/null
"$gaudi" docs install | head -n 1
GAUDI_LAUNCH_LANG=zh "$gaudi" docs install | head -n 1
"$gaudi" plan Qwen/Qwen3-8B -n 1 --machine simulated:hls2 | tail -n 3
cd - >/dev/null
"$scratch/fresh/bin/python" scripts/man.py "$folder/man"
echo "   $(find "$folder/man" -name '*.1' | wc -l) manual pages"
echo "== Done: $folder/upload"
