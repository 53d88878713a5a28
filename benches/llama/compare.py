"""Times `hadal bench` and llama.cpp (peer.mjs) on the same models in turn, A B A B, so that what else the machine does
hits both alike, and prints a Markdown table: tokens/s as min / median / max, and the ratio of the medians.

    python3 benches/llama/compare.py MODEL... [-t THREADS] [-p 512] [-n 64] [-r 5] [--json FILE]

Needs `cargo build --release` and benches/llama/fetch.sh.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "benches/llama/peer.mjs"


class Failure(Exception):
    """An engine could not run a model."""


class Peer:
    """llama.cpp in a process that keeps the model loaded and runs a test when asked."""

    def __init__(self, model, context):
        command = ["node", PEER, model, "--serve", "-c", str(context)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, test, threads, warm_up=False):
        request = {"test": test, "threads": threads, "repetitions": 1, "warm_up": warm_up}
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise Failure("llama.cpp ended") from None
        answer = self.process.stdout.readline()
        if not answer:
            raise Failure("llama.cpp ended")
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def hadal(program, model, test, threads):
    """A row of `hadal bench`: one warm-up and one repetition in a process of its own."""
    kind, count = test[:2], test[2:]
    lengths = ["-p", count, "-n", "0"] if kind == "pp" else ["-p", "0", "-n", count]
    command = [program, "bench", "-m", model, *lengths, "-t", str(threads), "-r", "1", "-o", "json"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(result.stderr.strip())
    return json.loads(result.stdout)[0]


def compare(arguments, model):
    """Yields a result for each test of `model`."""
    longest = max(arguments.prompt, arguments.generate)
    tests = [f"pp{arguments.prompt}"] * (arguments.prompt > 0) + [f"tg{arguments.generate}"] * (arguments.generate > 0)
    with Peer(model, longest) as peer:
        for test in tests:
            ours, theirs = [], []
            about = peer.run(test, arguments.threads, warm_up=True)
            for _ in range(arguments.repetitions):
                row = hadal(arguments.hadal, model, test, arguments.threads)
                ours.append(row["tokens_per_second"]["median"])
                theirs += peer.run(test, arguments.threads)["tokens_per_second"]
            yield {
                "model": pathlib.Path(model).name,
                "format": row["format"],
                "weight_bytes": row["weight_bytes"],
                "threads": arguments.threads,
                "isa": row["isa"],
                "test": test,
                "hadal": ours,
                "llama_cpp": theirs,
                "ratio": statistics.median(ours) / statistics.median(theirs),
                "peer": {key: about[key] for key in ("release", "variant", "buffers_mib")},
            }


def spread(values):
    return f"{min(values):.2f} / {statistics.median(values):.2f} / {max(values):.2f}"


HEAD = """\
| model | threads | test | hadal | llama.cpp | ratio |
| --- | ---: | ---: | ---: | ---: | ---: |"""


def line(result):
    cells = [result["model"], result["threads"], result["test"], spread(result["hadal"]), spread(result["llama_cpp"])]
    return "| " + " | ".join(map(str, cells)) + f" | {result['ratio']:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="GGUF files")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of the prompt test; 0: none")
    parser.add_argument("-n", "--generate", type=int, default=64, help="tokens of the generation test; 0: none")
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--hadal", default=ROOT / "target/release/hadal", help="the program")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements there, too")
    arguments = parser.parse_args()
    results, failed = [], False
    print(HEAD, flush=True)
    for model in arguments.models:
        try:
            for result in compare(arguments, model):
                print(line(result), flush=True)
                results.append(result)
        except Failure as failure:
            print(f"{model}: {failure}", file=sys.stderr)
            failed = True
    if results:
        peer = results[0]["peer"]
        print(f"\nllama.cpp {peer['release']}, libggml-cpu-{peer['variant']}; tokens/s as min / median / max")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
