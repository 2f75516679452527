"""nnsight and captum work on these models, as docs/if_you_know.md shows: values are those of the model's own hooks."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs/if_you_know.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def without_neuron(value: torch.Tensor, hook: Any) -> torch.Tensor:
    return torch.cat((torch.zeros_like(value[..., :1]), value[..., 1:]), -1)


def test_a_trace_of_nnsight_gives_the_models_activations_and_its_edit_is_that_of_a_hook(tmp_path: Path) -> None:
    pytest.importorskip("nnsight")
    (tmp_path / "traced.py").write_text(blocks()[0])  # nnsight reads the source of the block
    names = runpy.run_path(str(tmp_path / "traced.py"))
    adder, tokens = names["adder"], names["tokens"]
    _, cache = adder.run_with_cache(tokens)
    assert torch.equal(names["z"], cache["blocks.0.attn.hook_z"])
    hooked = adder.run_with_hooks(tokens, fwd_hooks=[("blocks.0.mlp.hook_post", without_neuron)])
    torch.testing.assert_close(names["logits"], hooked)


def test_integrated_gradients_of_captum_add_up_to_the_difference_of_the_logit() -> None:
    pytest.importorskip("captum")
    import models

    adder = models.load("microadder-57")
    names: dict[str, Any] = {"adder": adder, "tokens": adder.task.encode(["57+48", "99+1"])}
    exec(blocks()[1], names)
    logit = adder(names["tokens"])[:, names["query"], 1].detach()
    total = names["attributions"].sum((1, 2))
    torch.testing.assert_close(total, logit - logit.flip(0), atol=0.01, rtol=0)
