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
# # Bring your own model
#
# There are three ways to bring your own model: a stock TransformerLens model together with a task, a published
# checkpoint, and a new architecture as a weight map of twenty lines. All three get the same questions.

# %%
import math
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

import interp
import models
from interp.figures.tables import table
from models.evaluation import score
from models.number_format import small
from models.tasks import TwoDigitAddition, problem_pairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import normal_

torch.manual_seed(0)
torch.set_num_threads(1)
task = TwoDigitAddition()  # a1 a0 b1 b0 -> s0 s1 s2; 9,500 pairs to learn from, 500 held out
problems = task.held_out.others
right = task.targets(problems)
tokens, queries = task.encode(problems), list(task.query_positions)


def train(model: nn.Module, steps: int = 300, lr: float = 5e-3, batch: int = 256) -> None:
    """A plain loop; any other would do."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        rows = torch.randint(len(tokens), (batch,))
        loss = nn.functional.cross_entropy(model(tokens[rows])[:, queries].flatten(0, 1), right[rows].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.eval()


# %% [markdown]
# ## 1. Any TransformerLens model
#
# The next cell builds a model with whichever version of TransformerLens is installed, and trains it for a few seconds.
# It knows nothing of this project.

# %%
SHAPE = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_head": 8, "d_mlp": 128, "n_ctx": 6, "d_vocab": 10}
options = SHAPE | {"act_fn": "gelu_new", "normalization_type": "LN", "seed": 0}
if find_spec("transformer_lens.HookedTransformer"):  # 3.9
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    stock = HookedTransformer(HookedTransformerConfig(device="cpu", **options))
else:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    stock = TransformerBridge.boot_native(TransformerBridgeConfig(**options))
train(stock)
score(stock, task.held_out.problems, task=task)

# %% [markdown]
# The model lacks only the meaning of its tokens. A probe gets it from `task`, the one argument it needs besides the
# model.

# %%
attention = interp.attention_by_role(stock, task=task)
attention.figure("heads")

# %%
pairs = problem_pairs(task, "made carry", column=1, n=256, seed=0, side="mixed")
sweep = interp.activation_patching(stock, pairs, site="resid_pre")
sweep

# %%
sweep.figure()

# %%
algorithm = interp.which_algorithm(stock, n=400, task=task)
algorithm

# %% [markdown]
# ## 2. A published checkpoint
#
# `models.load` reads the `.pt` files of MicroAdder and of the 456 family. It recognises which of the two it is by the
# configuration inside, and executes nothing that a pickle might hold. The result is a model like any other, and can
# even be certified. The file is read from `shared/checkpoints` next to the checkout, if it is there.

# %%
published = Path("../../shared/checkpoints/microadder_57p.pt")
theirs = models.load(published) if published.exists() else None
score(theirs) if theirs else "The published checkpoint is not here."

# %%
interp.certify(theirs) if theirs else "The published checkpoint is not here."

# %% [markdown]
# ## 3. A new architecture in twenty lines
#
# An architecture is a *weight map*: free numbers go in, and the matrices of an ordinary transformer come out. Suppose
# that digits should be *clocks*: digit d stands at angle 2 pi k d / 10 on the k-th of five circles, and only the
# circles' radii are learned. That takes five numbers instead of a table of 320.


# %%
class Clocks(DenseWeights):
    """All weights free but W_E: five hands, of frequencies 1 to 5, whose lengths are learned."""

    def __init__(self, cfg: TransformerConfig):
        super().__init__(cfg)
        delattr(self, "embed/W_E")
        self.register_parameter("embed/radii", nn.Parameter(torch.ones(5)))
        angle = 2 * math.pi * torch.outer(torch.arange(10), torch.arange(1, 6)) / 10
        self.register_buffer("hands", torch.stack((angle.cos(), angle.sin()), -1), persistent=False)

    def forward(self) -> dict[str, torch.Tensor]:
        weights = super().forward()
        table = (self.hands * weights.pop("embed.radii")[:, None]).flatten(1)
        return weights | {"embed.W_E": nn.functional.pad(table, (0, self.config.d_model - 10))}

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        for name, parameter in self.named_parameters():
            if "/W_" in name:
                normal_(parameter, parameter.shape[-2] ** -0.5, generator)
        nn.init.ones_(self.get_parameter("embed/radii"))


# %%
config = TransformerConfig(**SHAPE, act_fn="gelu_new", normalization_type="LN")
weight_map = Clocks(config)
weight_map.initialise(torch.Generator().manual_seed(0))
clocks = ArithmeticTransformer(weight_map, task, name="clocks")
free = sum(p.numel() for p in clocks.parameters())
{"free parameters": free, "with a free table of embeddings": free - 5 + clocks.W_E.numel()}

# %%
train(clocks, steps=450)
score(clocks, task.held_out.problems)

# %% [markdown]
# Probes see ordinary matrices. Which clocks have grown from their initial length of 1, and which algorithm does the
# model run?

# %%
radii = clocks.weight_map.get_parameter("embed/radii").tolist()
table([[f"{radius:.2f}" for radius in radii]], [f"frequency {k}" for k in range(1, 6)], "Lengths of the hands")

# %%
spectrum = interp.fourier_spectrum(clocks.W_E)
spectrum

# %%
spectrum.figure()

# %%
algorithm = interp.which_algorithm(clocks, n=400)
algorithm

# %%
algorithm.figure()

# %% [markdown]
# The model can also be exported. The effective weights become a stock model with equal logits, which every other tool
# can read.

# %%
exported = (
    clocks.to_hooked_transformer()
    if find_spec("transformer_lens.HookedTransformer")
    else clocks.to_transformer_bridge()
)
with torch.inference_mode():
    error = (exported(tokens[:512]) - clocks(tokens[:512])).abs().max().item()
print(f"{type(exported).__name__}: logits differ by at most {small(error)} on 512 problems")

# %% [markdown]
# With the weight map in a file of your own, registered with its task and a recipe, the model trains with
# `interp train FILE.py:NAME`, in stacked seeds (`docs/add_a_model.md`), and `models.check(model)` says whether
# it keeps TransformerLens' contract. Notebook `12_bring_your_own` reads the files that other programs write.
