"""``python -m benchmarks [training] [scoring] [decoding] ...``: the named benchmarks, or all. Those that compare give
their ratios, which go to the stored table (:mod:`benchmarks.record`)."""

import sys

import torch

from benchmarks import (
    board,
    certifying,
    decoding,
    explorer,
    forward,
    gpu,
    patching,
    record,
    scoring,
    sequence_training,
    training,
    tropical_attention,
)

ALL = {
    "training": training.main,
    "scoring": scoring.main,
    "sequence-training": sequence_training.main,
    "decoding": decoding.main,
    "tropical-attention": tropical_attention.main,
    "forward": forward.main,
    "patching": patching.main,
    "certifying": certifying.main,
    "board": board.main,
    "explorer": explorer.main,
    "gpu": gpu.main,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    unknown = [name for name in sys.argv[1:] if name not in ALL]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}; there is {', '.join(ALL)}.")
    at, ratios = record.place(), {}
    for name in sys.argv[1:] or ALL:
        ratios |= ALL[name]() or {}
        print()
    if ratios:
        lost = record.add(ratios, at)
        print(f"{len(ratios)} ratios are in {record.TABLE} and {record.PAGE}.")
        print("\n".join(["These fell by more than a fifth:", *lost] if lost else ["None fell by more than a fifth."]))
