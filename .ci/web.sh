#!/usr/bin/env bash
# The package for browsers: builds the WebAssembly module and the TypeScript around it on x86-64 Debian and drives both in
# headless Chromium, whose WebGPU runs on the CPU there. As `targets.sh`, with what Debian has: `npm run build` is the
# ordinary way. Root installs what is missing; anyone else is told.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
  echo "skipped: the package for browsers: $1"
  [ "${HADAL_CI:-0}" != 1 ] || exit 1
  exit 0
}

packages=(rustc-web cargo-web rust-web-src lld-19 chromium fonts-dejavu-core)
command -v npm >/dev/null || packages+=(nodejs npm)
if ! dpkg --status "${packages[@]}" >/dev/null 2>&1; then
  command -v apt-get >/dev/null || skip "this is no Debian"
  [ "$(id -u)" = 0 ] || skip "not root, and one of these packages is missing: ${packages[*]}"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >/dev/null ||
    skip "apt-get found no ${packages[*]}"
fi

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bindgen=$target/tools/debug/bindgen
# Meanwhile, as builds have parts with one thread: what npm has, and the program that writes the modules' JavaScript.
(cd web && npm install --silent --no-audit --no-fund) &
npm=$!
CARGO_TARGET_DIR=$target/tools cargo build --quiet --locked --manifest-path .ci/bindgen/Cargo.toml &
tools=$!

# Only what computes is optimized for speed, and in one module: the rest takes longer to optimize than to run.
profile=(--config 'profile.release.lto="off"' --config profile.release.debug=false --config profile.release.opt-level=1
  --config profile.release.codegen-units=16)

# module FOLDER ARGUMENT...: a module in a folder of the package, built as `build.mjs` has wasm-pack do it. Programs of the
# host are built once for all. No wasm-opt: Debian's is too old to keep the tables of references that the JavaScript uses.
module() {
  local out=web/dist/$1 bytes
  shift
  (
    cd web
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/web \
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-19 /usr/bin/cargo build --lib --quiet --locked --release \
      --target wasm32-unknown-unknown -Zbuild-std=std,panic_abort -Zbuild-std-features= "${profile[@]}" "$@"
  )
  wait "$tools"
  "$bindgen" "$target/web/wasm32-unknown-unknown/release/hadal_web.wasm" "$out"
  bytes=$(gzip -9 <"$out/hadal_web_bg.wasm" | wc -c)
  echo "web: ${out##*/} takes $bytes bytes compressed"
  [ "$bytes" -lt 3000000 ]
}
rm -rf web/dist
module wasm --config profile.release.package.hadal.opt-level=2
module threads --no-default-features --config threads.toml

wait "$npm"
cd web
npx tsc -p ts
SHOTS=${SHOTS:-$target/web/shots} CHROMIUM=${CHROMIUM:-$(command -v chromium)} npm test --silent
