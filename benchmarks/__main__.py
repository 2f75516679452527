"""``python -m benchmarks [training] [scoring] [decoding] ...``: the named benchmarks, or all."""

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
    for name in sys.argv[1:] or ALL:
        ALL[name]()
        print()
