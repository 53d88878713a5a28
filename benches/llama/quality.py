"""Perplexity and divergence of llama.cpp's own files, as benches/quality.sh measures Hadal's, and of any GGUF file in it.

    python3 benches/llama/quality.py TEXT --chunks N --source SOURCE.gguf [--imatrix FILE] TYPE...   makes TYPEs of SOURCE
    python3 benches/llama/quality.py TEXT --chunks N MODEL.gguf...                                   measures files

Windows of 512 tokens behind the token that begins texts, if the vocabulary has one; the second half is scored. Divergence is
that from SOURCE, in the same engine, at all positions over SOURCE's 2048 likeliest tokens, as `hadal eval kl` with a dump finds
it. The IQ types are made with the importance in FILE, of `hadal imatrix` or `llama-imatrix`. MXFP4 is that type for all
matrices but the output's and the embedding, not llama.cpp's mixture of this name, which makes dense models Q8_0. Needs numpy, gguf for an imatrix,
and benches/llama/fetch.sh.
"""

import argparse
import ctypes
import pathlib
import tempfile

import numpy

from retype import LIBRARIES, Parameters, library

WINDOW = 512
# Of the source's tokens, so many likeliest ones are compared.
TOP = 2048

# `enum llama_ftype` of what the ladder has: the mixtures, not one type for all.
FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12,
    "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20,
    "Q2_K_S": 21, "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28,
    "IQ2_M": 29, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "NVFP4": 39, "Q1_0": 40,
}  # fmt: skip

# `enum ggml_type`.
Q8_0 = 8


class Opaque(ctypes.Structure):
    """Parameters that are passed on by value as the library gave them; room for those of other versions."""

    _fields_ = [("numbers", ctypes.c_uint32 * 64)]


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = [
        ("count", ctypes.c_int32),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("embeddings", ctypes.c_void_p),
        ("positions", ctypes.POINTER(ctypes.c_int32)),
        ("sequence_counts", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("outputs", ctypes.POINTER(ctypes.c_int8)),
    ]


class Importance(ctypes.Structure):
    """`llama_model_imatrix_data`."""

    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Llama:
    """The library, with the types of what is called here."""

    def __init__(self, threads):
        # Kernels for this machine's CPU are found beside the library.
        ggml = ctypes.CDLL(str(next(LIBRARIES.glob("libggml.v*.so"))), mode=ctypes.RTLD_GLOBAL)
        ggml.ggml_backend_load_all_from_path(bytes(LIBRARIES))
        self.threads = threads
        self.llama = llama = library()
        pointer = ctypes.c_void_p
        for name, result, arguments in [
            ("llama_model_default_params", Opaque, []),
            ("llama_context_default_params", Opaque, []),
            ("llama_model_quantize_default_params", Parameters, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Opaque]),
            ("llama_init_from_model", pointer, [pointer, Opaque]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_get_memory", pointer, [pointer]),
            ("llama_get_logits", ctypes.POINTER(ctypes.c_float), [pointer]),
            ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
            ("llama_vocab_n_tokens", ctypes.c_int32, [pointer]),
            ("llama_vocab_bos", ctypes.c_int32, [pointer]),
            ("llama_vocab_get_add_bos", ctypes.c_bool, [pointer]),
            ("llama_decode", ctypes.c_int32, [pointer, Batch]),
            ("llama_free", None, [pointer]),
            ("llama_model_free", None, [pointer]),
        ]:
            function = getattr(llama, name)
            function.restype, function.argtypes = result, arguments
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
        llama.llama_log_set(self.quiet, None)
        llama.llama_backend_init()

    def tokens(self, vocabulary, text):
        text = text.encode()
        found = (ctypes.c_int32 * len(text))()
        arguments = ctypes.c_char_p(text), len(text), found, len(found), ctypes.c_bool(True), ctypes.c_bool(False)
        count = self.llama.llama_tokenize(ctypes.c_void_p(vocabulary), *arguments)
        return list(found[:count])

    def logits(self, path, text, chunks):
        """Yields for each window its tokens and the logits after each of them but the last, [511, vocabulary]."""
        llama = self.llama
        model = llama.llama_model_load_from_file(bytes(path), llama.llama_model_default_params())
        if not model:
            raise SystemExit(f"{path}: llama.cpp can't load it")
        parameters = llama.llama_context_default_params()
        # n_ctx, n_batch, n_ubatch; threads for one token and for many.
        for place, number in [(0, WINDOW), (1, WINDOW), (2, WINDOW), (6, self.threads), (7, self.threads)]:
            parameters.numbers[place] = number
        context = llama.llama_init_from_model(model, parameters)
        vocabulary = llama.llama_model_get_vocab(model)
        width = llama.llama_vocab_n_tokens(vocabulary)
        begins = llama.llama_vocab_get_add_bos(vocabulary)
        tokens = self.tokens(vocabulary, text)
        for start in range(0, min(len(tokens) // WINDOW, chunks) * WINDOW, WINDOW):
            window = tokens[start : start + WINDOW]
            if begins:
                window[0] = llama.llama_vocab_bos(vocabulary)
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            if llama.llama_decode(context, batch(window)) != 0:
                raise SystemExit(f"{path}: llama.cpp can't decode")
            found = llama.llama_get_logits(context)
            yield window, numpy.ctypeslib.as_array(found, (WINDOW - 1, width))
        llama.llama_free(context)
        llama.llama_model_free(model)

    def quantize(self, source, path, name, importance):
        parameters = self.llama.llama_model_quantize_default_params()
        parameters.threads, parameters.file_type = self.threads, FILE_TYPES[name]
        parameters.allow_requantize = True
        if name == "MXFP4":
            parameters.pure, parameters.output_type, parameters.embedding_type = True, Q8_0, Q8_0
        if importance and name.startswith("IQ"):
            parameters.pointers[0] = ctypes.addressof(importance)
        arguments = ctypes.c_char_p(bytes(source)), ctypes.c_char_p(bytes(path)), ctypes.byref(parameters)
        return self.llama.llama_model_quantize(*arguments) == 0


def batch(window):
    count = len(window)
    one = (ctypes.c_int32 * 1)(0)
    sequences = (ctypes.POINTER(ctypes.c_int32) * count)(*[one] * count)
    return Batch(
        count,
        (ctypes.c_int32 * count)(*window),
        None,
        (ctypes.c_int32 * count)(*range(count)),
        (ctypes.c_int32 * count)(*[1] * count),
        sequences,
        (ctypes.c_int8 * count)(*[position < count - 1 for position in range(count)]),
    )


def importance(path):
    """`llama_model_imatrix_data` of a GGUF imatrix: mean squares of columns, ended by an empty one."""
    import gguf

    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    rows = []
    for name, sums in tensors.items():
        if name.endswith(".in_sum2"):
            counts = tensors[name.removesuffix(".in_sum2") + ".counts"].reshape(-1, 1)
            mean = (sums.reshape(len(counts), -1) / numpy.maximum(counts, 1)).astype(numpy.float32).ravel()
            # Kept by the structures, which outlive this.
            values = (ctypes.c_float * len(mean))(*mean)
            rows.append(Importance(name.removesuffix(".in_sum2").encode(), values, len(mean)))
    return (Importance * (len(rows) + 1))(*rows)


def log_sum_exp(logits):
    """Of each row, in float64."""
    largest = logits.max(axis=1, keepdims=True)
    return numpy.log(numpy.exp(logits - largest).sum(axis=1, dtype=numpy.float64)) + largest[:, 0]


def likeliest(logits):
    """Tokens of each row and the logarithms of their probabilities, both [rows, TOP], and which token is first, [rows]."""
    tokens = numpy.argpartition(logits, -TOP, axis=1)[:, -TOP:]
    probable = numpy.take_along_axis(logits, tokens, axis=1) - log_sum_exp(logits)[:, None]
    return tokens, probable, logits.argmax(axis=1)


def measure(windows, reference=None):
    """Losses of the second halves, then divergences and equal first tokens if there is a reference."""
    losses, divergences, same = [], [], []
    for index, (window, logits) in enumerate(windows):
        whole = log_sum_exp(logits)
        losses += [whole[row] - logits[row, window[row + 1]] for row in range(WINDOW // 2, WINDOW - 1)]
        if reference:
            tokens, expected, first = reference[index]
            found = numpy.take_along_axis(logits, tokens, axis=1) - whole[:, None]
            divergences += list((numpy.exp(expected) * (expected - found)).sum(axis=1))
            same += list(logits.argmax(axis=1) == first)
    perplexity = numpy.exp(numpy.mean(losses))
    cells = [f"{perplexity:.2f} ± {perplexity * numpy.std(losses, ddof=1) / len(losses) ** 0.5:.2f}"]
    if reference:
        cells += [f"{numpy.mean(divergences):.4f}", f"{numpy.quantile(divergences, 0.99):.3f}"]
        cells += [f"{100 * numpy.mean(same):.1f} %"]
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("names", nargs="+", metavar="TYPE|MODEL")
    parser.add_argument("--source", type=pathlib.Path, help="the file that types are made of; without it, files are measured")
    parser.add_argument("--chunks", type=int, required=True)
    parser.add_argument("--imatrix", help="for the IQ types")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_intermixed_args()
    llama, text = Llama(arguments.threads), arguments.text.read_text()
    logits = lambda path: llama.logits(path, text, arguments.chunks)
    if not arguments.source:
        print("| file | perplexity |\n|---|---|", flush=True)
        for name in arguments.names:
            print(f"| {pathlib.Path(name).name} | {measure(logits(pathlib.Path(name)))[0]} |", flush=True)
        return
    weights = importance(arguments.imatrix) if arguments.imatrix else None
    reference = []

    def source():
        for window, found in logits(arguments.source):
            reference.append(likeliest(found))
            yield window, found

    print("| type | MiB | perplexity | mean KL | 99 % of KL below | same first token |")
    print("|---|---|---|---|---|---|")
    size = arguments.source.stat().st_size / 2**20
    print(f"| source | {size:.1f} | {measure(source())[0]} | | | |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        for name in arguments.names:
            if not llama.quantize(arguments.source, path, name, weights):
                print(f"| {name} | llama.cpp can't make it |", flush=True)
                continue
            cells = [f"{path.stat().st_size / 2**20:.1f}", *measure(logits(path), reference)]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
