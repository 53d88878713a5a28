"""Quantizes a GGUF model anew with llama.cpp's own quantizer, so that a real model can be timed in many types.

    python3 benches/llama/retype.py MODEL --type q4_k [-o OUT.gguf] [--threads N]

A type takes rows of whole blocks: where they are not, llama.cpp takes another type and says so on standard error.
SmolLM2-135M has rows of 576, Qwen2.5-0.5B of 896: most matrices of their K and IQ files are of such other types.
What the source lost stays lost; speed does not depend on it. iq1 and iq2 need an importance matrix and are left out.
Needs benches/llama/fetch.sh.
"""

import argparse
import ctypes
import pathlib

LIBRARIES = (
    pathlib.Path(__file__).resolve().parents[2] / "target/llama/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
)

# `enum llama_ftype`: what most matrices become.
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15,
    "q5_k": 17, "q6_k": 18, "iq3_xxs": 23, "iq4_nl": 25, "iq3_s": 26, "iq4_xs": 30, "bf16": 32, "tq1_0": 36,
    "tq2_0": 37, "mxfp4": 38, "q1_0": 40, "q2_0": 41,
}  # fmt: skip


class Parameters(ctypes.Structure):
    """`llama_model_quantize_params` of llama.cpp v0.4.0, as far as it is set here."""

    _fields_ = [
        ("threads", ctypes.c_int32),
        ("file_type", ctypes.c_int32),
        ("output_type", ctypes.c_int32),
        ("embedding_type", ctypes.c_int32),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("pointers", ctypes.c_void_p * 4),
        ("max_buffer", ctypes.c_size_t),
    ]


def library():
    """The engine's library; it finds those beside it."""
    return ctypes.CDLL(str(next(LIBRARIES.glob("libllama.v*.so"))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--type", required=True, choices=FILE_TYPES, metavar="TYPE", help=" ".join(FILE_TYPES))
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: target/models/retyped/NAME-TYPE.gguf")
    parser.add_argument("--threads", type=int, default=0, help="default: all")
    arguments = parser.parse_args()
    name = arguments.model.stem.split("-Q")[0].split(".Q")[0]
    path = arguments.output or pathlib.Path(f"target/models/retyped/{name}-{arguments.type}.gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    llama = library()
    llama.llama_backend_init()
    llama.llama_model_quantize_default_params.restype = Parameters
    parameters = llama.llama_model_quantize_default_params()
    parameters.threads, parameters.file_type = arguments.threads, FILE_TYPES[arguments.type]
    # One type for all matrices, not the mix that the type's name stands for.
    parameters.allow_requantize = parameters.pure = True
    llama.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Parameters)]
    if llama.llama_model_quantize(bytes(arguments.model), bytes(path), parameters) != 0:
        raise SystemExit(f"{arguments.model} could not be made {arguments.type}")
    print(path)


if __name__ == "__main__":
    main()
