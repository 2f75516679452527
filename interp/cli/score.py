"""The command ``interp score``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interp.cli.arguments import Force, Json, ModelName, one_thread
from interp.cli.outputs import write_reply


@dataclass(frozen=True)
class Score:
    """Score a model on its task's test set (for example AdderBoard's 10,010 problems), by carry-chain length."""

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    method: Literal["teacher_forced", "greedy"] = "teacher_forced"
    """Both give the same verdict on a whole answer; greedy decodes token by token."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        import models
        from interp.cli.own_files import load_model
        from interp.core.replies import reply
        from interp.core.results import Provenance

        one_thread()
        model = load_model(self.model)
        if model.task.compared_by == "loss":
            loss = models.text_loss(model)
            print(f"{self.model}: {loss}")
            rests = Provenance(loss.n, None, f"characters in {loss.windows} windows of the text")
            write_reply(self.json, reply("TextLoss", str(loss), (), loss.to_dict(), rests))
            return
        result = models.score(model, method=self.method)
        print(result)
        table = result.to_dataframe()
        print(table.to_string(index=False, float_format="{:.4f}".format))
        rests = Provenance(result.n, None, result.problems, result.rung)
        write_reply(self.json, reply("Score", str(result), table, result.to_dict(), rests))
