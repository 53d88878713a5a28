#!/usr/bin/env bash
# The tables of docs/quality.md: what each type costs a model, measured on one text.
# benches/quality.sh SOURCE TEXT CHUNKS TYPE...   SOURCE is a GGUF file of f16, f32 or bf16. Variables: HADAL is the program,
# KL_CHUNKS the windows that divergence is measured with, if not as many, IMATRIX what `hadal imatrix` wrote: the IQ types are
# made with it. With KEEP files stay, in that folder, as TYPE.gguf.
set -euo pipefail
source=$1 text=$2 chunks=$3
shift 3
hadal=${HADAL:-target/release/hadal}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

figure() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$1" "$2"; }

"$hadal" eval dump -m "$source" "$text" --chunks "${KL_CHUNKS:-$chunks}" -o "$work/reference" 2>/dev/null
echo "| type | bits/weight | perplexity | mean KL | 99 % of KL below | same first token |"
echo "|---|---|---|---|---|---|"
for type in "$@"; do
  weigh=()
  if [[ $type == IQ* && -n ${IMATRIX:-} ]]; then weigh=(--imatrix "$IMATRIX"); fi
  model=${KEEP:-$work}/$type.gguf
  size=$("$hadal" quantize "$source" --type "$type" "${weigh[@]}" -o "$model" 2>/dev/null)
  bits=$(sed -E 's/.* bytes.*, ([0-9.]+) bits.*/\1/' <<<"$size")
  "$hadal" eval ppl -m "$model" "$text" --chunks "$chunks" --output json >"$work/ppl" 2>/dev/null
  "$hadal" eval kl -m "$model" --reference "$work/reference" --output json >"$work/kl" 2>/dev/null
  printf '| %s | %s | %.2f ± %.2f | %.4f | %.3f | %.1f %% |\n' "$type" "$bits" \
    "$(figure "$work/ppl" perplexity)" "$(figure "$work/ppl" standard_error)" "$(figure "$work/kl" mean_kl)" \
    "$(figure "$work/kl" p99_kl)" "$(python3 -c "print(100 * $(figure "$work/kl" top1_agreement))")"
  [[ -n ${KEEP:-} ]] || rm "$model"
done
