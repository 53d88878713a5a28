#!/usr/bin/env bash
# The table of docs/quality.md: what each type costs a model, measured on one text.
# benches/quality.sh SOURCE TEXT CHUNKS TYPE...   SOURCE is a GGUF file of f16, f32 or bf16; HADAL is the program, KL_CHUNKS
# the windows that divergence is measured with, if not as many.
set -euo pipefail
source=$1 text=$2 chunks=$3
shift 3
hadal=${HADAL:-target/release/hadal}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

figure() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$1" "$2"; }

echo "| type | bits/weight | perplexity | mean KL | 99 % of KL below | same first token |"
echo "|---|---|---|---|---|---|"
for type in "$@"; do
  size=$("$hadal" quantize "$source" --type "$type" -o "$work/model.gguf" 2>/dev/null)
  bits=$(sed -E 's/.* bytes.*, ([0-9.]+) bits.*/\1/' <<<"$size")
  "$hadal" eval ppl -m "$work/model.gguf" "$text" --chunks "$chunks" --output json >"$work/ppl" 2>/dev/null
  "$hadal" eval kl -m "$work/model.gguf" --reference "$source" "$text" --chunks "${KL_CHUNKS:-$chunks}" --output json >"$work/kl" 2>/dev/null
  printf '| %s | %s | %.2f ± %.2f | %.4f | %.3f | %.1f %% |\n' "$type" "$bits" \
    "$(figure "$work/ppl" perplexity)" "$(figure "$work/ppl" standard_error)" "$(figure "$work/kl" mean_kl)" \
    "$(figure "$work/kl" p99_kl)" "$(python3 -c "print(100 * $(figure "$work/kl" top1_agreement))")"
done
