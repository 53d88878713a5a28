"""Writes a Llama-shaped GGUF model of random weights: what two engines are timed on where no real model of a type is
at hand. Speed does not depend on the weights' values, so the codes of the blocks are random bytes, and only the scales
are set, such that weights have a standard deviation near 0.02 and logits stay finite.

    python3 benches/llama/synthetic.py --type q4_k [-o FILE] [--layers N]

Every matrix, embedding and head included, has the one type; norms are ones in f32.
"""

import argparse
import pathlib
import struct
from dataclasses import dataclass, field

import numpy as np

# synth-1.1b: 1.10 G parameters with an untied head. Every row is a multiple of 256.
HIDDEN, INNER, HEADS, KV_HEADS, VOCAB, LAYERS, CONTEXT = 2048, 8192, 32, 8, 32000, 16, 4096
DEVIATION = 0.02
ALIGNMENT = 32


@dataclass
class Type:
    """A GGUF type: its id, a block's elements and bytes, and what of a block is not random."""

    id: int
    elements: int
    bytes: int
    # Offset in the block -> an f16. The deviation of weights with random codes and a scale of 1 is what divides
    # DEVIATION below; a negative entry is the minimum that centres unsigned codes.
    halves: dict = field(default_factory=dict)
    octets: dict = field(default_factory=dict)


def scale(unit, offset=0):
    return {offset: DEVIATION / unit}


def scale_and_min(unit, centre, at=0):
    return {at: DEVIATION / unit, at + 2: DEVIATION / unit * centre}


TYPES = {
    "f32": Type(0, 1, 4),
    "f16": Type(1, 1, 2),
    "bf16": Type(30, 1, 2),
    "q1_0": Type(41, 128, 18, scale(1)),
    "q2_0": Type(42, 64, 18, scale(1.22)),
    "q4_0": Type(2, 32, 18, scale(4.6)),
    "q4_1": Type(3, 32, 20, scale_and_min(4.6, -7.5)),
    "q5_0": Type(6, 32, 22, scale(9.2)),
    "q5_1": Type(7, 32, 24, scale_and_min(9.2, -15.5)),
    "q8_0": Type(8, 32, 34, scale(74)),
    "q2_k": Type(10, 256, 84, scale_and_min(13.9, 1.5, at=80)),
    "q3_k": Type(11, 256, 110, scale(43, 108)),
    "q4_k": Type(12, 256, 144, scale_and_min(258, 7.5)),
    "q5_k": Type(13, 256, 176, scale_and_min(525, 15.5)),
    "q6_k": Type(14, 256, 210, scale(1370, 208)),
    "iq1_s": Type(19, 256, 50, scale(7.5)),
    "iq1_m": Type(29, 256, 56),
    "iq2_xxs": Type(16, 256, 66, scale(58)),
    "iq2_xs": Type(17, 256, 74, scale(58)),
    "iq2_s": Type(22, 256, 82, scale(58)),
    "iq3_xxs": Type(18, 256, 98, scale(154)),
    "iq3_s": Type(21, 256, 110, scale(145)),
    "iq4_nl": Type(20, 32, 18, scale(72)),
    "iq4_xs": Type(23, 256, 136, scale(1340)),
    "tq1_0": Type(34, 256, 54, scale(0.82, 52)),
    "tq2_0": Type(35, 256, 66, scale(0.82, 64)),
    # e8m0: 2^(e - 128) is the table's unit; ue4m3: 3 is 3 * 2^-10.
    "mxfp4": Type(39, 32, 17, octets={0: 120}),
    "nvfp4": Type(40, 64, 36, octets={0: 3, 1: 3, 2: 3, 3: 3}),
}


def random_blocks(name, rng):
    """About 4 MB of blocks of the type `name`, as bytes."""
    kind = TYPES[name]
    if name in ("f32", "f16", "bf16"):
        values = rng.standard_normal(1 << 21, dtype=np.float32) * np.float32(DEVIATION)
        if name == "bf16":
            return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return values.astype("<f4" if name == "f32" else "<f2").tobytes()
    # An odd number of blocks: rows of a power of two do not repeat each other.
    count = (4 << 20) // kind.bytes | 1
    blocks = rng.integers(0, 256, (count, kind.bytes), dtype=np.uint8)
    for offset, value in kind.halves.items():
        blocks[:, offset : offset + 2] = np.frombuffer(np.array(value, "<f2").tobytes(), np.uint8)
    for offset, value in kind.octets.items():
        blocks[:, offset] = value
    if name == "tq2_0":
        # Code 3 means nothing: it becomes 1.
        codes = blocks[:, :64]
        codes &= ~((codes & codes >> 1 & 0x55) << 1)
    if name == "iq1_m":
        # The f16 scale lies in the top nibbles of the last four words.
        bits = int(np.array(DEVIATION / 7.5, "<f2").view(np.uint16))
        for word in range(4):
            high = blocks[:, 49 + 2 * word]
            high[:] = high & 15 | (bits >> 4 * word & 15) << 4
    return blocks.tobytes()


def tensors(name, layers):
    """(name, dimensions innermost first, type) of every tensor."""
    kv = HIDDEN // HEADS * KV_HEADS
    yield "token_embd.weight", (HIDDEN, VOCAB), name
    for index in range(layers):
        block = f"blk.{index}."
        yield block + "attn_norm.weight", (HIDDEN,), "ones"
        yield block + "attn_q.weight", (HIDDEN, HIDDEN), name
        yield block + "attn_k.weight", (HIDDEN, kv), name
        yield block + "attn_v.weight", (HIDDEN, kv), name
        yield block + "attn_output.weight", (HIDDEN, HIDDEN), name
        yield block + "ffn_norm.weight", (HIDDEN,), "ones"
        yield block + "ffn_gate.weight", (HIDDEN, INNER), name
        yield block + "ffn_up.weight", (HIDDEN, INNER), name
        yield block + "ffn_down.weight", (INNER, HIDDEN), name
    yield "output_norm.weight", (HIDDEN,), "ones"
    yield "output.weight", (HIDDEN, VOCAB), name


def vocabulary():
    """A SentencePiece vocabulary: three control pieces, the 256 bytes, made-up words. (texts, scores, types)"""
    unknown, control, normal, byte = 2, 3, 1, 6
    pieces = [("<unk>", unknown), ("<s>", control), ("</s>", control)]
    pieces += [(f"<0x{value:02X}>", byte) for value in range(256)]
    pieces += [(f"\u2581w{index}", normal) for index in range(VOCAB - len(pieces))]
    texts, types = zip(*pieces)
    return list(texts), [-float(index) for index in range(VOCAB)], list(types)


def metadata(title, layers):
    texts, scores, types = vocabulary()
    return {
        "general.architecture": "llama",
        "general.name": title,
        "general.alignment": ALIGNMENT,
        "llama.block_count": layers,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HIDDEN // HEADS,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": VOCAB,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value):
    """A metadata value after its type: whole numbers are u32, in arrays i32."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    kind = {str: STRING, float: F32, int: I32}[type(value[0])]
    head = struct.pack("<IIQ", ARRAY, kind, len(value))
    if kind == STRING:
        return head + b"".join(map(text, value))
    return head + np.array(value, "<f4" if kind == F32 else "<i4").tobytes()


def padded(size):
    return -size % ALIGNMENT


def write(path, name, layers, seed):
    rng = np.random.default_rng(seed)
    tile = random_blocks(name, rng)
    entries = list(tensors(name, layers))
    keys = metadata(f"synth-1.1b-{name}", layers)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(entries), len(keys))
    head += b"".join(text(key) + value_bytes(value) for key, value in keys.items())
    sizes, offset = [], 0
    for tensor, shape, kind in entries:
        row = TYPES["f32" if kind == "ones" else kind]
        size = int(np.prod(shape)) // row.elements * row.bytes
        head += text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, row.id, offset)
        offset += size + padded(size)
        sizes.append(size)
    with open(path, "wb") as file:
        file.write(head + bytes(padded(len(head))))
        for (_, shape, kind), size in zip(entries, sizes):
            if kind == "ones":
                file.write(np.ones(shape, "<f4").tobytes())
            else:
                # The tile over and over: what lies in memory twice is still read twice.
                whole, rest = divmod(size, len(tile))
                file.writelines([tile] * whole + [tile[:rest]])
            file.write(bytes(padded(size)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", required=True, choices=sorted(TYPES), metavar="TYPE", help=" ".join(sorted(TYPES)))
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: target/models/synthetic/synth-1.1b-TYPE.gguf")
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"default: {LAYERS}")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    path = arguments.output or pathlib.Path(f"target/models/synthetic/synth-1.1b-{arguments.type}.gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, arguments.type, arguments.layers, arguments.seed)
    print(path)


if __name__ == "__main__":
    main()
