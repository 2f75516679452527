"""The commands that prove and refute: certify and attack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from interp.cli.own_flags import load_model
from interp.cli.shared_options import (
    STORED,
    Bare,
    Json,
    Model,
    OptionalFile,
    OptionalOutput,
    Shape,
    shaped,
)
from interp.cli.written_files import write_reply
from models.errors import UserError


def certify(
    model: Model,
    arithmetic: Literal["float", "interval", "float32"] | None = None,
    shape: Shape = (),
    json: Json = None,
    tolerance: float = 1e-6,
    digits_only: bool = False,
    exact_share: bool = False,
    minutes: float | None = 15.0,
    check: Annotated[OptionalFile, Bare(STORED)] = None,
    card: bool = False,
    standalone: OptionalOutput = None,
) -> int:
    """Prove that a model is right on every input, or find an input on which it is wrong. There are proofs for ten-digit
    adders of one or two layers, for hand-built models and for causal models on small domains. For other models with at
    most 2^20 problems, all of them are run through the model.

    Exit status: 0 certified, 1 refuted, 3 undecided, 4 only sampled (--arithmetic float, which proves nothing), 5
    proved for a rule such as a + b that was only tried to be the task's answer; with --check, that of the certificate
    if it holds.

    Args:
        arithmetic: For proofs: "float" samples (or runs all of a small domain) and proves nothing; "interval" is about
            the reals; and "float32" covers rounding.
        tolerance: How far apart the bounds on the share of wrong pairs may be, where the model is not certified.
        digits_only: For ten-digit adders: judge the eleven digits, as AdderBoard does, and not the EOS after them.
        exact_share: Judge a model that gets a quarter of 64 random problems wrong as any other, for the share of all.
        minutes: How many minutes to try (None: as many as it takes); what is not proved by then stays undecided.
        check: Verify this certificate against the model instead of making one; alone, the one that is stored with the
            model.
        card: Keep the certificate in the model's zoo entry, with a line on its card, if it is certified or refuted.
        standalone: Also write a file for certificates/check.py, which proves the claim without this package.
    """
    from interp import proofs
    from interp.proofs.columns.checker_export import require_checkable, write_standalone

    loaded = _with_card(model) if card else load_model(model)
    task = shaped(loaded.task, shape) if shape else None
    targets = "digits" if digits_only else "all"
    if standalone is not None:
        require_checkable(loaded, arithmetic, targets)
    if check is not None:
        found = proofs.check_certificate(_certificate(model, check), loaded, task)
    else:
        found = proofs.certify(
            loaded,
            arithmetic=arithmetic,
            task=task,
            tolerance=tolerance,
            targets=targets,
            minutes=minutes,
            exact_share=exact_share,
        )
    print("holds: " * (check is not None) + found.sentence())
    write_reply(json, found)
    if standalone is not None:
        write_standalone(found, loaded, standalone)
    if card:
        _keep_on_card(model, found)
    return found.exit_status


def _certificate(model: str, path: Path) -> Any:
    from interp.proofs import load_certificate
    from interp.proofs.stored_verdicts import stored_verdict

    if str(path) != STORED:
        return load_certificate(path)
    found = stored_verdict(model)
    if found is None:
        raise UserError(f"No certificate is stored with {model}; --check FILE takes one of your own.")
    return found


def _with_card(model: str) -> Any:
    """The model. Raises UserError for one without an entry, and so without a card, before the work."""
    from models.zoo import read_entry

    read_entry(model)
    return load_model(model)


def _keep_on_card(model: str, found: Any) -> None:
    from interp.proofs.stored_verdicts import store

    print(f"written to {store(model, found)}")


def attack(
    model: Model,
    shape: Shape = (),
    runs: int = 20_000,
    seed: int = 0,
    seconds: float | None = None,
    card: bool = False,
    json: Json = None,
) -> int:
    """Search along gradients for a problem that a model answers wrong; for models that no proof reaches.

    Exit status: 0 no failure found (which proves nothing), 1 a failure found and replayed, 2 bad input.

    Args:
        runs: Sequences through the model; a gradient counts as three. A random search gets as many.
        seed: Seed of both searches.
        seconds: Stop the attack after this many seconds; the result then depends on the machine.
        card: Keep the first wrong answer in the model's zoo entry, with a line on its card.
    """
    from interp.proofs import attacks

    loaded = _with_card(model) if card else load_model(model)
    task, progress = shaped(loaded.task, shape), sys.stderr.isatty()
    found = attacks.attack(loaded, task=task, runs=runs, seed=seed, seconds=seconds, progress=progress)
    print(found.sentence(), found.to_dataframe().to_string(index=False, float_format="{:.3f}".format), sep="\n")
    for wrong in found.wrong:
        answer = "no number" if wrong.predicted is None else wrong.predicted
        where = f"{wrong.first_wrong_target}, margin {wrong.margin:.3f}"
        print(f"{found.text(wrong.problem)} = {answer}   wrong: it is {wrong.expected} ({where})")
    write_reply(json, found)
    if card:
        _keep_on_card(model, found)
    return 1 if found.wrong else 0
