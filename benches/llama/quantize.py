"""How fast Hadal and llama.cpp quantize one real matrix on one core, in turns, and whether to the same bytes.

    python3 benches/llama/quantize.py MODEL.gguf [--hadal PROGRAM] [--rounds N] [--weighted] TYPE...

The matrix is `ffn_down`, or another --tensor, of MODEL's first layers, as f32. Hadal's time is that of the whole program `hadal quantize --threads 1`,
which reads and writes files; llama.cpp's is that of `ggml_quantize_chunk` alone. Both are time on the CPU, so that others on the
machine count little, and the least of N rounds. Types that llama.cpp refuses without importance have some, with --weighted all.
Needs numpy, gguf and benches/llama/fetch.sh.
"""

import argparse
import ctypes
import pathlib
import resource
import subprocess
import tempfile
import time

import gguf
import numpy

from retype import LIBRARIES

# Enough weights for the program's start not to count.
LAYERS = 12


def matrix(path, kind):
    """Rows of the matrices of one kind, [rows, columns], of a few layers."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    layers = [tensors[f"blk.{layer}.{kind}.weight"] for layer in range(LAYERS)]
    rows = [gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in layers]
    return numpy.ascontiguousarray(numpy.concatenate(rows), dtype=numpy.float32)


def write(path, architecture, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    if architecture == "imatrix":
        writer.add_type("imatrix")
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Hadal:
    def __init__(self, program, folder, kind, rows, importance):
        self.program, self.source, self.out = program, folder / "source.gguf", folder / "out.gguf"
        self.imatrix, self.kind = folder / "imatrix.gguf", kind
        name = f"blk.0.{kind}.weight"
        write(self.source, "llama", {name: rows})
        sums = {f"{name}.in_sum2": importance[None, :], f"{name}.counts": numpy.ones((1, 1), numpy.float32)}
        write(self.imatrix, "imatrix", sums)

    def seconds(self, name, weighted):
        used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        command = [self.program, "quantize", self.source, "--type", "f16", "--tensor-type", f"{self.kind}={name.lower()}"]
        command += ["--threads", "1", "-o", self.out] + (["--imatrix", self.imatrix] if weighted else [])
        before = used()
        subprocess.run(command, check=True, capture_output=True)
        return used() - before

    def bytes(self):
        """What was made last."""
        return gguf.GGUFReader(self.out).tensors[0].data.tobytes()


class Llama:
    def __init__(self, rows, importance):
        library = ctypes.CDLL(str(next(LIBRARIES.glob("libggml-base*.so"))), mode=ctypes.RTLD_GLOBAL)
        self.chunk, self.needs = library.ggml_quantize_chunk, library.ggml_quantize_requires_imatrix
        self.chunk.restype, self.needs.restype = ctypes.c_size_t, ctypes.c_bool
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.chunk.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
        self.rows, self.importance, self.out = rows, importance, numpy.empty(rows.nbytes, numpy.uint8)

    def seconds(self, name, weighted):
        importance = self.importance.ctypes.data if weighted else None
        arguments = gguf.GGMLQuantizationType[name], self.rows.ctypes.data, self.out.ctypes.data, 0
        columns = self.rows.shape[1]
        # Tables are made at the first call.
        self.chunk(*arguments, 1, columns, importance)
        before = time.process_time()
        self.count = self.chunk(*arguments, len(self.rows), columns, importance)
        return time.process_time() - before

    def bytes(self):
        """What was made last."""
        return self.out[: self.count].tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("types", nargs="+", metavar="TYPE", type=str.upper)
    parser.add_argument("--hadal", default="target/release/hadal")
    parser.add_argument("--tensor", default="ffn_down", metavar="KIND", help="such as attn_q")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weighted", action="store_true")
    arguments = parser.parse_intermixed_args()
    rows = matrix(arguments.model, arguments.tensor)
    importance = numpy.random.default_rng(7).exponential(size=rows.shape[1]).astype(numpy.float32)
    print("| type | importance | Hadal, million weights/s | llama.cpp | times | same bytes |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        hadal = Hadal(arguments.hadal, pathlib.Path(folder), arguments.tensor, rows, importance)
        llama = Llama(rows, importance)
        for name in arguments.types:
            weighted = arguments.weighted or llama.needs(gguf.GGMLQuantizationType[name])
            pairs = [[peer.seconds(name, weighted) for peer in (hadal, llama)] for _ in range(arguments.rounds)]
            ours, theirs = map(min, zip(*pairs))
            speeds = [rows.size / seconds / 1e6 for seconds in (ours, theirs)]
            weighted, same = ["yes" if fact else "no" for fact in (weighted, hadal.bytes() == llama.bytes())]
            figures = f"{speeds[0]:.2f} | {speeds[1]:.2f} | {theirs / ours:.2f}"
            print(f"| {name} | {weighted} | {figures} | {same} |", flush=True)


if __name__ == "__main__":
    main()
