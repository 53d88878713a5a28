#!/usr/bin/env bash
# The library on other machines: builds it for aarch64 and WebAssembly (WASI) on x86-64 Debian and runs the tests of formats and
# kernels there, under QEMU and node. Neither rustup's targets nor an Arm machine are needed: Debian's own cargo builds
# the standard library from source. Root installs what is missing; anyone else is told. Takes CPU-minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
  echo "skipped: aarch64 and wasm32: $1"
  [ "${HADAL_CI:-0}" != 1 ] || exit 1
  exit 0
}

packages=(rustc-web cargo-web rust-web-src gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static lld-19 wasi-libc)
command -v node >/dev/null || packages+=(nodejs)
if ! dpkg --status "${packages[@]}" >/dev/null 2>&1; then
  command -v apt-get >/dev/null || skip "this is no Debian"
  [ "$(id -u)" = 0 ] || skip "not root, and one of these packages is missing: ${packages[*]}"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >/dev/null ||
    skip "apt-get found no ${packages[*]}"
fi

# Not rustup's compiler, which has no sources of the standard library. Only our own code is optimized:
# the rest takes longer to optimize than to run.
export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/other CARGO_INCREMENTAL=0
profile=(--config profile.dev.debug=false --config profile.dev.opt-level=0 --config profile.dev.package.hadal.opt-level=2)
jobs=()

# on TARGET ARGUMENT...: tests of formats for the target, as a job of its own: while one's programs run, of which some have
# one thread, the next is built. The bound is there for a program that hangs; builds wait for each other in it.
logs=$(mktemp -d)
trap 'rm -r "$logs"' EXIT
on() {
  local target=$1
  shift
  (
    echo "$target: $*"
    timeout 3600 /usr/bin/cargo test --quiet --locked --no-default-features --target "$target" "${profile[@]}" "$@"
  ) >"$logs/${#jobs[@]}" 2>&1 &
  jobs+=($!)
}

# Debian's WASI library in place of the one that a prebuilt standard library brings. It is too old to know pthread_join and
# pthread_detach, which nothing reaches where no thread can start: the linker makes them a trap.
wasi=/usr/lib/wasm32-wasi
export CARGO_TARGET_WASM32_WASIP1_LINKER=wasm-ld-19
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128 -C link-self-contained=no -L native=$wasi \
  -C link-arg=$wasi/crt1-command.o -C link-arg=--unresolved-symbols=ignore-all"
export CARGO_TARGET_WASM32_WASIP1_RUNNER='node --no-warnings .ci/wasi.mjs'
# A panic ends the program there, with what it had kept of the test's output.
on wasm32-wasip1 -Zbuild-std=std,panic_abort -Zbuild-std-features= --test dots --test formats --test format_properties -- --nocapture

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS='--cfg formats_only'
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64-static -L /usr/aarch64-linux-gnu'
# Kernels of three instruction sets: optimizing them takes longer than running them as they are.
for test in dots formats; do
  on aarch64-unknown-linux-gnu -Zbuild-std=std,panic_unwind -Zbuild-std-features=panic-unwind \
    --config profile.dev.package.hadal.opt-level=1 --test "$test"
done

failed=0
for job in "${!jobs[@]}"; do
  wait "${jobs[job]}" || failed=1
  cat "$logs/$job"
done
exit "$failed"
