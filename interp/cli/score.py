"""The command ``interp score``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interp.cli.arguments import Force, ModelName, OptionalOutput, one_thread
from interp.cli.outputs import write_json


@dataclass(frozen=True)
class Score:
    """Score a model on its task's test set (for example AdderBoard's 10,010 problems), by carry-chain length."""

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    method: Literal["teacher_forced", "greedy"] = "teacher_forced"
    """Both give the same verdict on a whole answer; greedy decodes token by token."""
    json: OptionalOutput = None
    """Also write the score here."""
    force: Force = False

    def run(self) -> None:
        import models
        from interp.cli.own_files import load_model

        one_thread()
        model = load_model(self.model)
        if model.task.compared_by == "loss":
            loss = models.text_loss(model)
            print(f"{self.model}: {loss}")
            if self.json:
                write_json(self.json, loss.to_dict())
            return
        result = models.score(model, method=self.method)
        print(result)
        print(result.to_dataframe().to_string(index=False, float_format="{:.4f}".format))
        if self.json:
            write_json(self.json, result.to_dict())
