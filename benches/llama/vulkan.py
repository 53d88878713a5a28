#!/usr/bin/env python3
"""Times llama.cpp's products of a matrix and one vector on a Vulkan device, format by format: what `hadal bench --gpu --kernels`
prints of decoding. `fetch.sh vulkan` brings the libraries.

    GGML_VK_VISIBLE_DEVICES=0 python3 benches/llama/vulkan.py --shape 4096x14336 --copies 3.2

A software device has to be named by that variable. Weights are random bytes, as many matrices as no cache holds.
"""

import argparse
import ctypes
import pathlib
import random
import statistics
import time

LIBRARIES = (
    pathlib.Path(__file__).resolve().parents[2]
    / "target/llama/node_modules/@node-llama-cpp/linux-x64-vulkan/bins/linux-x64-vulkan"
)
UNCACHED_BYTES = 160 << 20
MOST_TYPES = 64


class Parameters(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = [("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="4096x14336", help="outputs x inputs")
    parser.add_argument("--format", help="names, separated by commas [default: all]")
    parser.add_argument("--copies", type=float, required=True, help="GB/s of copies, as hadal bench measures them")
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="after which a format is measured no more")
    arguments = parser.parse_args()
    outputs, inputs = map(int, arguments.shape.split("x"))
    base = library("libggml-base.so")
    vulkan = library("libggml-vulkan.so")
    backend = vulkan.ggml_backend_vk_init(ctypes.c_size_t(0))
    print("| format | GB/s | best | of copies |\n| --- | ---: | ---: | ---: |", flush=True)
    for kind in range(MOST_TYPES):
        name = base.ggml_type_name(kind)
        name = name.decode().lower() if name else ""
        if not name or (arguments.format and name not in arguments.format.split(",")):
            continue
        if (speeds := measure(base, backend, kind, outputs, inputs, arguments)) is None:
            continue
        median, best = statistics.median(speeds), max(speeds)
        print(f"| {name} | {median:.2f} | {best:.2f} | {100 * best / arguments.copies:.0f}% |", flush=True)


def library(name):
    found = ctypes.CDLL(str(LIBRARIES / name), mode=ctypes.RTLD_GLOBAL)
    for function in ["ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_backend_alloc_ctx_tensors",
                     "ggml_backend_vk_init"]:
        try:
            getattr(found, function).restype = ctypes.c_void_p
        except AttributeError:
            pass
    if name == "libggml-base.so":
        found.ggml_type_name.restype = ctypes.c_char_p
        found.ggml_backend_supports_op.restype = ctypes.c_bool
        for function in ["ggml_nbytes", "ggml_row_size", "ggml_type_size"]:
            getattr(found, function).restype = ctypes.c_size_t
        found.ggml_blck_size.restype = ctypes.c_int64
    return found


def measure(base, backend, kind, outputs, inputs, arguments):
    """GB/s of weights, a number a run; None for what no product takes."""
    block = base.ggml_blck_size(kind)
    if not block or inputs % block or not base.ggml_type_size(kind):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    context = pointer(base.ggml_init(Parameters(16 << 20, None, True)))
    matrix_bytes = outputs * base.ggml_row_size(kind, size(inputs))
    count = -(-UNCACHED_BYTES // matrix_bytes)
    x = pointer(base.ggml_new_tensor_2d(context, 0, size(inputs), size(1)))
    matrices = [pointer(base.ggml_new_tensor_2d(context, kind, size(inputs), size(outputs))) for _ in range(count)]
    products = [pointer(base.ggml_mul_mat(context, matrix, x)) for matrix in matrices]
    if not base.ggml_backend_supports_op(pointer(backend), products[0]):
        base.ggml_free(context)
        return None
    graph = pointer(base.ggml_new_graph(context))
    for product in products:
        base.ggml_build_forward_expand(graph, product)
    buffer = pointer(base.ggml_backend_alloc_ctx_tensors(context, pointer(backend)))
    # Without bit 6 in a byte no f16 scale is an infinity or a NaN.
    weights = bytes(byte & 0xBF for byte in random.Random(1).randbytes(1 << 16))
    weights = (weights * (matrix_bytes // len(weights) + 1))[:matrix_bytes]
    for tensor, data in [(x, bytes(4 * inputs)), *((matrix, weights) for matrix in matrices)]:
        base.ggml_backend_tensor_set(tensor, data, ctypes.c_size_t(0), ctypes.c_size_t(len(data)))
    speeds = []
    base.ggml_backend_graph_compute(pointer(backend), graph)
    begin = time.perf_counter()
    while len(speeds) < arguments.repetitions and (not speeds or time.perf_counter() - begin < arguments.seconds):
        start = time.perf_counter()
        base.ggml_backend_graph_compute(pointer(backend), graph)
        speeds.append(count * matrix_bytes / (time.perf_counter() - start) / 1e9)
    base.ggml_backend_buffer_free(buffer)
    base.ggml_free(context)
    return speeds


if __name__ == "__main__":
    main()
