"""The command ``interp attack``."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from interp.cli.arguments import Force, Json, ModelName, Shape, one_thread, shaped
from interp.cli.outputs import write_reply


@dataclass(frozen=True)
class AttackModel:
    """Search along gradients for a problem that a model answers wrong; for models that no proof reaches.

    Exit status: 0 no failure found (which proves nothing), 1 a failure found and replayed, 2 bad input.
    """

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    shape: Shape = ()
    """The task's shape, for tasks of many (operands and digits of an addition, say); the model's own by default."""
    runs: int = 20_000
    """Sequences through the model; a gradient counts as three. A random search gets as many."""
    seed: int = 0
    """Seed of both searches."""
    seconds: float | None = None
    """Stop the attack after this many seconds; the result then depends on the machine."""
    card: bool = False
    """Keep the first wrong answer in the model's zoo entry, with a line on its card."""
    json: Json = None
    force: Force = False

    def run(self) -> int:
        from interp.cli.own_files import load_model
        from interp.core.replies import reply_of
        from interp.proofs.attacks import attack
        from interp.proofs.stored_certificates import store
        from models.zoo import read_entry

        one_thread()
        if self.card:
            read_entry(self.model)  # refuses a model without an entry, and so without a card, before the work
        model = load_model(self.model)
        task, progress = shaped(model.task, self.shape), sys.stderr.isatty()
        result = attack(model, task=task, runs=self.runs, seed=self.seed, seconds=self.seconds, progress=progress)
        print(result.sentence())
        print(result.to_dataframe().to_string(index=False, float_format="{:.3f}".format))
        for wrong in result.wrong:
            answer = "no number" if wrong.predicted is None else wrong.predicted
            where = f"{wrong.first_wrong_target}, margin {wrong.margin:.3f}"
            print(f"{result.text(wrong.problem)} = {answer}   wrong: it is {wrong.expected} ({where})")
        write_reply(self.json, reply_of(result))
        if self.card:
            print(f"written to {store(self.model, result)}")
        return 1 if result.wrong else 0
