"""Perplexity of model folders in mlx-lm, by the rules of `hadal eval ppl`: windows of 512 tokens, the second half scored.

    pip install "mlx[cpu]" mlx-lm
    hadal convert MODEL --type affine4_g64 -o FOLDER
    python3 benches/mlx/perplexity.py TEXT --chunks N FOLDER...
    hadal eval ppl -m FOLDER TEXT --chunks N
"""

import argparse
import pathlib

import mlx.core as mx
import mlx.nn as nn
import numpy
from mlx_lm import load

WINDOW = 512


def perplexity(folder, text, chunks):
    """The perplexity, its standard error, and how many tokens were scored."""
    model, tokenizer = load(folder)
    tokens = tokenizer.encode(text)
    # Where a vocabulary has a token that begins texts, each window begins with it.
    begin = tokenizer.encode("")[:1]
    losses = []
    for start in range(0, min(len(tokens) // WINDOW, chunks) * WINDOW, WINDOW):
        window = begin + tokens[start + len(begin) : start + WINDOW]
        logits = model(mx.array([window[:-1]]))[0, WINDOW // 2 :].astype(mx.float32)
        losses.append(numpy.array(nn.losses.cross_entropy(logits, mx.array(window[WINDOW // 2 + 1 :]))))
    losses = numpy.concatenate(losses).astype(numpy.float64)
    found = numpy.exp(losses.mean())
    return found, found * losses.std(ddof=1) / len(losses) ** 0.5, len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--chunks", type=int, required=True)
    arguments = parser.parse_intermixed_args()
    mx.set_default_device(mx.cpu)
    for folder in arguments.folders:
        found, error, tokens = perplexity(folder, arguments.text.read_text(), arguments.chunks)
        print(f"{folder}: {found:.4f} ± {error:.4f}, {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
