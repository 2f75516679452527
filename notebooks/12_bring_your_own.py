# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bring your own: from a file to a verdict
#
# Four models come from outside: a Hugging Face folder, a nanoGPT checkpoint, a TransformerLens model, and a run of this
# package's trainer on a task of its own. Each is trained here in seconds, written to a file, and read back with the
# meaning of its tokens. Then all four get the same two questions: where does the carry pass, and is it right on every
# input?

# %%
import os
import tempfile
from importlib.util import find_spec

import torch
import transformers
from torch import nn
from torch.nn import functional as F

import interp
import models
from interp.figures.tables import findings
from models.tasks import formatted, problem_pairs

os.chdir(tempfile.mkdtemp())  # an empty folder: nothing of the project is needed or changed
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
torch.set_num_threads(1)

# %% [markdown]
# ## 1. A task is a format and a function
#
# Two numbers of two digits, and the sum with its units first. From these two lines follow the vocabulary, what each
# position means, the carries, pairs of problems that differ in one carry, and the domain of 10,000 problems, of which a
# tenth is held out.

# %%
task = formatted("{a:2}+{b:2}={s:3r}", "a + b", variables="addition")
variables = task.variables(["57+48"])
{"tokens": task.token_text(task.encode(["57+48"])[0]), "carry out": variables["carry_out"][0].tolist()}

# %%
held_out = {tuple(row) for row in task.held_out.problems.tolist()}
problems = torch.tensor([(a, b) for a in range(100) for b in range(100) if (a, b) not in held_out])
tokens, right, queries = task.encode(problems), task.targets(problems), list(task.query_positions)


def train(model: nn.Module, steps: int = 400, lr: float = 5e-3, batch: int = 256) -> None:
    """Somebody's own loop, which knows nothing of this package."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        rows = torch.randint(len(tokens), (batch,))
        found = model(tokens[rows])
        logits = getattr(found, "logits", found)[:, queries]
        loss = F.cross_entropy(logits.flatten(0, 1), right[rows].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.eval()


# %% [markdown]
# ## 2. A Hugging Face folder
#
# `transformers` makes a GPT-2 of two layers, and writes the folder. No tokenizer is needed, and no code of the folder
# is run.

# %%
size = {"n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 12, "n_positions": 8, "activation_function": "relu"}
without = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": None, "eos_token_id": None}
theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **without))
train(theirs)
theirs.save_pretrained("gpt2")
gpt2 = models.load("gpt2", task=task)
with torch.no_grad():
    difference = (gpt2(tokens) - theirs(tokens).logits).abs().max() / theirs(tokens).logits.abs().max()
agree = "agree with" if difference < 1e-4 else "differ from"
print(f"On {len(tokens):,} problems, all logits {agree} those of transformers (tolerance: 1e-4 of the largest).")

# %% [markdown]
# Patching puts the stream of one run into another, one layer and position at a time. The two problems of a pair differ
# in the carry out of the units, and the logit difference of the tens digit is read.

# %%
pairs = problem_pairs(task, "made carry", column=1, n=256, seed=0, side="mixed")
patching = {"gpt2": interp.activation_patching(gpt2, pairs, site="resid_pre")}
patching["gpt2"]

# %%
patching["gpt2"].figure()

# %% [markdown]
# Is it right on all 10,000 problems? The verdict proves it, for the reals or with the rounding of float32 enclosed, or
# names a problem that the model gets wrong.

# %%
verdicts = {"gpt2": interp.certify(gpt2)}
verdicts["gpt2"]

# %% [markdown]
# ## 3. A nanoGPT checkpoint
#
# This module has nanoGPT's names and its checkpoint's form: `model`, with the prefix that `torch.compile` leaves, and
# `model_args`. It has no biases.


# %%
class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(d, 3 * d, bias=False), "c_proj": nn.Linear(d, d, bias=False)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d, bias=False), "c_proj": nn.Linear(4 * d, d, bias=False)})
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, d = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).view(n, length, 3 * self.heads, -1).transpose(1, 2)
        z = F.scaled_dot_product_attention(*parts.chunk(3, 1), is_causal=True)
        x = x + self.attn["c_proj"](z.transpose(1, 2).reshape(n, length, d))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGPT(nn.Module):
    def __init__(self, layers: int = 2, d: int = 48, heads: int = 4):
        super().__init__()
        blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        parts = {
            "wte": nn.Embedding(12, d),
            "wpe": nn.Embedding(8, d),
            "h": blocks,
            "ln_f": nn.LayerNorm(d, bias=False),
        }
        self.transformer, self.lm_head = nn.ModuleDict(parts), nn.Linear(d, 12, bias=False)
        self.args = {"n_layer": layers, "n_head": heads, "n_embd": d, "block_size": 8, "vocab_size": 12, "bias": False}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[: tokens.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


module = NanoGPT()
train(module)
state = {f"_orig_mod.{name}": value for name, value in module.state_dict().items()}
torch.save({"model": state, "model_args": module.args, "iter_num": 400}, "ckpt.pt")
nano = models.load("ckpt.pt", task=task)
patching["nanoGPT"] = interp.activation_patching(nano, pairs, site="resid_pre")
patching["nanoGPT"]

# %%
patching["nanoGPT"].figure()

# %%
verdicts["nanoGPT"] = interp.certify(nano)
verdicts["nanoGPT"]

# %% [markdown]
# ## 4. A TransformerLens model
#
# Its state dict is saved with its config, and read back as a model of this package. A live one can be asked as it is,
# with `task=`; notebook `08_bring_your_own_model` does that.

# %%
shape = {"n_layers": 2, "d_model": 48, "n_heads": 4, "d_head": 12, "d_mlp": 192, "n_ctx": 8, "d_vocab": 12}
options = shape | {"act_fn": "relu", "normalization_type": "LN", "seed": 0}
if find_spec("transformer_lens.HookedTransformer"):  # 3.9
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    stock = HookedTransformer(HookedTransformerConfig(device="cpu", **options))
else:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    stock = TransformerBridge.boot_native(TransformerBridgeConfig(**options))
train(stock)
torch.save({"state_dict": stock.state_dict(), "config": {"n_heads": 4, "act_fn": "relu"}}, "lens.pt")
lens = models.load("lens.pt", task=task)
patching["TransformerLens"] = interp.activation_patching(lens, pairs, site="resid_pre")
patching["TransformerLens"]

# %%
patching["TransformerLens"].figure()

# %%
verdicts["TransformerLens"] = interp.certify(lens)
verdicts["TransformerLens"]

# %% [markdown]
# ## 5. Another task: subtraction, trained here
#
# The answer has a sign, and the columns have borrows in place of carries. `models.train` stacks seeds, takes its
# problems from the task, and goes on after any stop; `models.load` finds the best seed of the run.

# %%
subtraction = formatted("{a:2}-{b:2}={s:+2}", "a - b", variables="subtraction")
config = models.TransformerConfig(
    n_layers=2, d_model=48, n_heads=4, d_head=12, d_mlp=192, d_vocab=13, n_ctx=8, act_fn="relu", normalization_type="LN"
)
recipe = {"lr": 5e-3, "warmup_steps": 50, "batch_size": 256, "weight_decay": 0.1, "betas": (0.9, 0.98)}
run = models.train(config, subtraction, steps=600, seeds=1, out="runs/subtraction", progress=False, **recipe)
minus = models.load("runs/subtraction")
minus.task.decode(minus.task.targets(["31-47", "80-8"]))

# %% [markdown]
# The pairs differ in whether the answer is negative, and the sign is read.

# %%
signs = problem_pairs(subtraction, "variable", variable="negative", column=0, n=256, seed=0)
patching["subtraction"] = interp.activation_patching(minus, signs, site="resid_pre")
patching["subtraction"]

# %%
patching["subtraction"].figure()

# %%
verdicts["subtraction"] = interp.certify(minus)
verdicts["subtraction"]

# %% [markdown]
# ## 6. Next to each other

# %%
findings(verdicts, "model")

# %%
findings(patching, "model")

# %%
for name, verdict in verdicts.items():
    where, restored = patching[name].strongest()
    what = "the carry" if name != "subtraction" else "the sign"
    said = (
        "It is proved right on all 10,000 problems"
        if verdict.status == "certified"
        else "It is wrong on some, as the verdict says"
    )
    print(f"{name}: {said}. The strongest single patch, at {where}, restores {restored:.0%} of what {what} changes.")
