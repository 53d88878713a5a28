#!/usr/bin/env bash
# The tables of docs/quality.md: what each type costs a model, measured on one text.
# benches/quality.sh SOURCE TEXT CHUNKS TYPE...   SOURCE is a GGUF file of f16, f32 or bf16. Variables: HADAL is the program,
# KL_CHUNKS the windows that divergence is measured with, if not as many, IMATRIX what `hadal imatrix` wrote: the IQ types are
# made with it. With KEEP files stay, in that folder, as TYPE.gguf. THREADS, if not one a core. Divergence is measured at all
# positions over the source's 2048 likeliest tokens.
set -euo pipefail
source=$1 text=$2 chunks=$3
shift 3
hadal=${HADAL:-target/release/hadal}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

threads=${THREADS:+--threads $THREADS}
measure() { # INSTRUMENT...: standard error has its progress
  # shellcheck disable=SC2086
  "$hadal" eval "$@" $threads 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
}
figure() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$1" "$2"; }

measure dump -m "$source" "$text" --chunks "${KL_CHUNKS:-$chunks}" -o "$work/reference"
echo "| type | bits/weight | perplexity | mean KL | 99 % of KL below | same first token |"
echo "|---|---|---|---|---|---|"
measure ppl -m "$source" "$text" --chunks "$chunks" --output json >"$work/ppl"
printf '| source | | %.2f ± %.2f | | | |\n' "$(figure "$work/ppl" perplexity)" "$(figure "$work/ppl" standard_error)"
for type in "$@"; do
  weigh=()
  if [[ $type == IQ* && -n ${IMATRIX:-} ]]; then weigh=(--imatrix "$IMATRIX"); fi
  model=${KEEP:-$work}/$type.gguf
  # shellcheck disable=SC2086
  if ! size=$("$hadal" quantize "$source" --type "$type" "${weigh[@]}" $threads -o "$model" 2>"$work/errors"); then
    echo "| $type | can't be made: $(tail -n 1 "$work/errors") |"
    continue
  fi
  bits=$(sed -E 's/.* bytes.*, ([0-9.]+) bits.*/\1/' <<<"$size")
  measure ppl -m "$model" "$text" --chunks "$chunks" --output json >"$work/ppl"
  measure kl -m "$model" --reference "$work/reference" --output json >"$work/kl"
  printf '| %s | %s | %.2f ± %.2f | %.4f | %.3f | %.1f %% |\n' "$type" "$bits" \
    "$(figure "$work/ppl" perplexity)" "$(figure "$work/ppl" standard_error)" "$(figure "$work/kl" mean_kl)" \
    "$(figure "$work/kl" p99_kl)" "$(python3 -c "print(100 * $(figure "$work/kl" top1_agreement))")"
  [[ -n ${KEEP:-} ]] || rm "$model"
done
