#!/usr/bin/env python3
"""Writes tables.bin, the codebooks and signs of TurboQuant, which tables.rs reads.

The numbers are facts of the scheme. The codebooks came from a Lloyd iteration over 200,000 normal samples, whose low
digits depend on the machine, so they are copied, never computed: those of mlx-bun 0.3.0
(src/mlx/turboquant-tables.ts), whose 3-bit one is vllm-metal's. The signs are 1 - 2 * randint(0, 2, (dim,), key(42))
of MLX, for each dim anew.

The argument is a JSON file: {"signs": {dim: [1, -1, ...]}, "lloyd_max": {bits: {"centroids": [...],
"boundaries": [...]}}}. Written are, little-endian, for 2, 3, 4, 5 and 8 bits 2^bits centroids and 2^bits - 1
boundaries as f32, both ascending, then for 64, 128, 256 and 512 elements a bit each, lowest first, set where the sign
is negative.

    python src/quant/turbo/tables.py tables.json
"""

import json
import struct
import sys
from pathlib import Path

tables = json.loads(Path(sys.argv[1]).read_text())
packed = bytearray()
for bits in (2, 3, 4, 5, 8):
    table = tables["lloyd_max"][str(bits)]
    for name, length in (("centroids", 2**bits), ("boundaries", 2**bits - 1)):
        values = table[name]
        assert len(values) == length and values == sorted(values), (bits, name)
        packed += struct.pack(f"<{length}f", *values)
for dim in (64, 128, 256, 512):
    signs = tables["signs"][str(dim)]
    assert len(signs) == dim
    negative = sum((sign < 0) << i for i, sign in enumerate(signs))
    packed += negative.to_bytes(dim // 8, "little")

path = Path(__file__).with_name("tables.bin")
path.write_bytes(packed)
print(f"{path.name}: {len(packed)} bytes")
