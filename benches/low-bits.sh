#!/bin/sh
# What types below five bits lose on a model: plainly, rotated, and with errors made up for (ldlq). A table in Markdown.
# usage: benches/low-bits.sh SOURCE CALIBRATION TEXT FOLDER TYPE...
set -eu
source=$1 calibration=$2 text=$3 folder=$4
shift 4
hadal=${HADAL:-hadal}
mkdir -p "$folder"
"$hadal" quantize "$source" --type f32 -o "$folder/f32.gguf" >/dev/null
"$hadal" quantize "$source" --rotate --type f32 -o "$folder/rotated.gguf" >/dev/null
number() { sed -n "s/.*\"$1\": \([0-9.e-]*\).*/\1/p"; }
line() { # name, file, bits
    ppl=$("$hadal" eval ppl "$text" -m "$2" -o json | number perplexity)
    kl=$("$hadal" eval kl "$text" -m "$2" --reference "$folder/f32.gguf" -o json)
    printf '| %s | %s | %.3f | %.5f | %.2f %% |\n' "$1" "$3" "$ppl" "$(echo "$kl" | number mean_kl)" \
        "$(echo "$kl" | number top1_agreement | awk '{ print 100 * $1 }')"
}
echo '| type | bits/weight | perplexity | mean KL | same first token |'
echo '|---|---|---|---|---|'
line f32 "$folder/f32.gguf" 32
for type in "$@"; do
    for way in plain rotated ldlq rotated+ldlq; do
        from=$folder/f32.gguf
        method=
        case $way in rotated*) from=$folder/rotated.gguf ;; esac
        case $way in *ldlq) method="--method ldlq --calibration $calibration" ;; esac
        # shellcheck disable=SC2086
        bits=$("$hadal" quantize "$from" --pure --type "$type" $method -o "$folder/model.gguf" 2>/dev/null |
            sed 's/.* bytes[^,]*, \([0-9.]*\) bits.*/\1/')
        line "$type, $way" "$folder/model.gguf" "$bits"
    done
done
