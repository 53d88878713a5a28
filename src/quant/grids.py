#!/usr/bin/env python3
"""Writes grids.bin, the codebooks of the IQ1, IQ2 and IQ3 formats, which grids.rs unpacks.

The values are facts of the formats. They are read from the `gguf` Python package (0.19.0, MIT licence,
https://github.com/ggml-org/llama.cpp/tree/master/gguf-py), where gguf/quants.py holds them.

One little-endian u16 an entry: the values' positions in the format's list of levels, first value in the lowest
bits, 2 bits each for entries of 8 values and 4 bits each for entries of 4.

    pip install gguf && python src/quant/grids.py
"""

from pathlib import Path

from gguf import quants

BOOKS = [quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S]

packed = bytearray()
for book in BOOKS:
    book.init_grid()
    entries, values = book.grid_shape
    bits = 16 // values
    for entry in book.grid.reshape(entries, values).astype(int):
        word = sum(book.grid_map.index(value) << bits * i for i, value in enumerate(entry))
        packed += word.to_bytes(2, "little")
    print(f"{book.__name__}: {entries} entries of {values}, levels {list(book.grid_map)}")

path = Path(__file__).with_name("grids.bin")
path.write_bytes(packed)
print(f"{path.name}: {len(packed)} bytes")
