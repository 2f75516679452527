"""Tasks that people bring, from a file of another program to a verdict: a table in docs/read_your_files.md.

    python docs/tasks_tried.py FOLDER     trains what is not in FOLDER yet (some minutes each), then writes the table

Each model is trained by the plain recipe of :mod:`benchmarks.provability.train` and saved as a GPT-2 of Hugging Face's
transformers. From there on only ``CODE`` runs, as a user would write it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import interp
import models
from benchmarks.provability.ordinary_models import OrdinaryModel
from benchmarks.provability.train import trained
from models.number_format import number

PAGE = Path(__file__).with_name("read_your_files.md")
TABLE = re.compile(r"^\| task \| said as .*?\|$(?=\n\n)", re.MULTILINE | re.DOTALL)
#: What is run of each task, a statement a line, after ``import interp, models`` and ``from models.tasks import *``.
CODE = """\
task = {said}
model = models.load(folder, task=task)
pairs = variable_pairs(task, {pairs})
figure = interp.activation_patching(model, pairs).figure()
verdict = interp.certify(model, minutes=1)"""
HEX = "lambda x: torch.stack(((10 * x[:, 0] + x[:, 1]) // 16, (10 * x[:, 0] + x[:, 1]) % 16), 1)"


@dataclass(frozen=True)
class Tried(OrdinaryModel):
    """A model for a task, as the trainer wants it; how the task is said, and what two problems of a pair differ in."""

    said: str = ""
    pairs: str = ""

    def made_task(self) -> models.tasks.Task:
        return eval(self.said, {"torch": torch, **vars(models.tasks)})

    def made_config(self, task: models.tasks.Task) -> models.TransformerConfig:
        return replace(super().made_config(task), act_fn="gelu_new")  # as GPT-2 has


def _tried(name: str, said: str, pairs: str, steps: int = 8_000, n: int | None = 64, **config: Any) -> Tried:
    return Tried(name, {}, config, steps=steps, said=said, pairs=f"{pairs}, n={n}")


TASKS = (
    _tried("binary addition", 'formatted("{a:8}+{b:8}={s:9}", "a + b", base=2, variables="addition")', '"carry_in", 4'),
    _tried(
        "the larger of two", 'formatted("max({a:2},{b:2})={m:2}", "max(a, b)", variables="max")', '"order", 1', 4_000
    ),
    _tried(
        "digits reversed",
        'formatted("<rev>{a:3}={s:3}", "a % 10 * 100 + a // 10 % 10 * 10 + a // 100")',
        '"a", 1',
        4_000,
    ),
    _tried("hexadecimal", f'function("0123456789", 2, {HEX}, answers="0123456789abcdef")', '"x", 0', 4_000),
    _tried("four digits sorted", 'function("0123456789", 4, "sorted")', '"x", 0', 4_000),
    _tried("a product", 'formatted("{a:2}*{b:1}={s:3}", "a * b", variables="multiplication")', '"carry_in", 1'),
    _tried("the day after n days", 'formatted("{d}+{n:3}={s}", "(d + n) % 7", where="d < 7")', '"n", 0'),
    _tried("balanced brackets", 'function("()", 8, "balanced", balance=True)', '"x", 7', n=None),
    _tried(
        "thousands with a comma",
        'formatted("{a:3}+{b:3}={s:1},{t:3}", "a + b", variables="addition")',
        '"carry_in", 2',
        1_000,
    ),
    _tried(
        "dollars and cents",
        'formatted("${a:2}.{a:2}+${b:2}.{b:2}=${s:3}.{s:2}", "a + b", variables="addition")',
        '"carry_in", 2',
        1_000,
    ),
    _tried(
        "addition modulo 100",
        'formatted("{a:2}+{b:2}={s:2}", "(a + b) % 100", variables="addition")',
        '"carry_in", 1',
        1_000,
    ),
    _tried("the largest of five", 'function("0123456789", 5, "max")', '"x", 0', 1_000),
    _tried("induction", "induction(8)", '"x", 7', 1_000, n_layers=2),
)


def as_gpt2(model: models.ArithmeticTransformer) -> transformers.GPT2LMHeadModel:
    """A model as transformers' class. GPT-2 has no bias of its logits: the last norm's gives it."""
    cfg, w = model.config, {name: value.detach() for name, value in model.all_weights().items()}
    joined = lambda l, kind: torch.cat([w[f"blocks.{l}.attn.{kind}_{c}"] for c in "QKV"])  # noqa: E731, E741
    w_u = w["unembed.W_U"]
    bias = w["ln_final.b"] + torch.linalg.lstsq(w_u.T, w["unembed.b_U"][:, None]).solution[:, 0]
    state = {"wte.weight": w["embed.W_E"], "wpe.weight": w["pos_embed.W_pos"], "ln_f.weight": w["ln_final.w"]}
    state |= {"ln_f.bias": bias}
    for l in range(cfg.n_layers):  # noqa: E741
        here, there = f"blocks.{l}.", f"h.{l}."
        for i, (long, short) in product((1, 2), (("weight", "w"), ("bias", "b"))):
            state[f"{there}ln_{i}.{long}"] = w[f"{here}ln{i}.{short}"]
        state[f"{there}attn.c_attn.weight"] = joined(l, "W").permute(1, 0, 2).flatten(1)
        state[f"{there}attn.c_attn.bias"] = joined(l, "b").flatten()
        state[f"{there}attn.c_proj.weight"] = w[f"{here}attn.W_O"].flatten(0, 1)
        state[f"{there}attn.c_proj.bias"] = w[f"{here}attn.b_O"]
        for theirs, ours in (("c_fc", "in"), ("c_proj", "out")):
            state[f"{there}mlp.{theirs}.weight"] = w[f"{here}mlp.W_{ours}"]
            state[f"{there}mlp.{theirs}.bias"] = w[f"{here}mlp.b_{ours}"]
    size = {"n_layer": cfg.n_layers, "n_embd": cfg.d_model, "n_head": cfg.n_heads, "n_inner": cfg.d_mlp}
    size |= {"vocab_size": cfg.d_vocab, "n_positions": cfg.n_ctx, "activation_function": cfg.act_fn}
    size |= {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}
    settings = transformers.GPT2Config.from_dict(size)
    gpt2 = transformers.GPT2LMHeadModel(settings)
    gpt2.load_state_dict({f"transformer.{name}": value for name, value in state.items()} | {"lm_head.weight": w_u.T})
    return gpt2.eval()


def run_code(code: str, **known: Any) -> tuple[dict[str, Any], list[float]]:
    """What the lines of a user make, by name, and the seconds of the processor that each takes. The figure may be
    refused: then it is the refusal's text."""
    space: dict[str, Any] = {"interp": interp, "models": models, "torch": torch, **vars(models.tasks), **known}
    seconds = []
    for line in code.splitlines():
        start = time.process_time()
        try:
            exec(line, space)
        except models.UserError as refused:
            if not line.startswith("figure"):
                raise
            space["figure"] = str(refused)
        seconds.append(time.process_time() - start)
    return space, seconds


def cells(space: dict[str, Any], seconds: list[float], own: Callable[[Tensor], Tensor]) -> dict[str, str]:
    """The columns of both tables that say what came of a file. ``own``: the logits of the class that wrote it."""
    task, model, figure = (space[name] for name in ("task", "model", "figure"))
    tokens = task.encode(task.sample(64, torch.Generator().manual_seed(0)))
    theirs = own(tokens)
    apart = float((model(tokens) - theirs).abs().max() / theirs.abs().max())
    return {
        "logits differ by": number(apart, 1),
        "figure": f"refused: {figure}" if isinstance(figure, str) else "yes",
        "verdict": re.split(r"; |: no failure", space["verdict"].finding())[0],
        "lines": str(len(seconds)),
        "CPU-seconds: load, figure, verdict": f"{seconds[1]:.2f}, {sum(seconds[2:4]):.1f}, {seconds[4]:.1f}",
    }


@torch.no_grad()
def row(tried: Tried, folder: Path) -> dict[str, str]:
    """What came of a task."""
    space, seconds = run_code(CODE.format(said=tried.said, pairs=tried.pairs), folder=folder)
    gpt2 = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    return {
        "task": tried.name,
        "said as": f"`{tried.said.replace('|', chr(92) + '|')}`",
        "a problem": f"`{_example(space['task'])}`",
        **cells(space, seconds, lambda tokens: gpt2(tokens).logits),
    }


def _example(task: models.tasks.Task) -> str:
    problem = task.sample(1, torch.Generator().manual_seed(0))
    return f"{task.problem_text(task.numbers(problem)[0])} -> {task.answer_text(task.targets(problem))}"


def main(place: Path) -> None:
    rows = []
    for tried in TASKS:
        folder = place / tried.name.replace(" ", "-")
        if not (folder / "config.json").exists():
            print(tried.name, flush=True)
            model, _ = trained(tried, 0)
            as_gpt2(model).save_pretrained(folder)
        rows.append(row(tried, folder))
        print(rows[-1], flush=True)
    write_table(TABLE, rows)


def write_table(found: re.Pattern[str], rows: list[dict[str, str]]) -> None:
    """Put a table in the place of the one that is found on the page."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(each.values()) for each in rows)]
    table = "\n".join(f"| {' | '.join(each)} |" for each in lines)
    PAGE.write_text(found.sub(lambda _: table, PAGE.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
