#!/bin/sh
# Fetches the llama.cpp engine that peer.mjs runs: node-llama-cpp with its ready Linux x64 CPU libraries, into
# target/llama. The other platforms' libraries, which npm brings too, are deleted.
set -eu
version=3.21.1
target=$(dirname "$0")/../../target/llama
mkdir -p "$target"
cd "$target"
[ -f package.json ] || echo '{"private": true}' >package.json
npm install --ignore-scripts --no-audit --no-fund --save-exact "node-llama-cpp@$version"
for platform in node_modules/@node-llama-cpp/*; do
    [ "${platform##*/}" = linux-x64 ] || rm -rf "$platform"
done
ls node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-*.so
