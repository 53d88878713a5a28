#!/bin/sh
# Fetches the llama.cpp engine that peer.mjs and retype.py run, into target/llama: node-llama-cpp and its ready
# libraries for Linux x64 without a GPU; `fetch.sh vulkan` those with Vulkan too, for vulkan.py. Those of other machines are its
# optional dependencies and left out.
set -eu
version=3.21.1
target=$(dirname "$0")/../../target/llama
mkdir -p "$target"
cd "$target"
[ -f package.json ] || echo '{"private": true}' >package.json
npm install --ignore-scripts --omit=optional --no-audit --no-fund --save-exact \
    "node-llama-cpp@$version" "@node-llama-cpp/linux-x64@$version" ${1:+"@node-llama-cpp/linux-x64-$1@$version"}
ls node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-*.so
