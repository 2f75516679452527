"""The command ``interp certify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from interp.cli.arguments import STORED, Force, Json, ModelName, OptionalFile, OptionalOutput, Shape, one_thread, shaped
from interp.cli.outputs import write_reply
from models.errors import UserError

if TYPE_CHECKING:
    from interp.proofs.verdict import Verdict


@dataclass(frozen=True)
class Certify:
    """Prove that a model is right on every input, or find an input on which it is wrong. There are proofs for ten-digit
    adders of one or two layers, for hand-built models and for causal models on small domains. For other models with at
    most 2^20 problems, all of them are run through the model.

    Exit status: 0 certified, 1 refuted, 3 undecided, 4 only sampled (--arithmetic float, which proves nothing), 5
    proved for a rule such as a + b that was only tried to be the task's answer; with --check, that of the certificate
    if it holds.
    """

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    arithmetic: Literal["float", "interval", "float32"] | None = None
    """For proofs: "float" samples (or runs all of a small domain) and proves nothing; "interval" is about the reals;
    and "float32" covers rounding."""
    shape: Shape = ()
    """For tasks of many lengths: judge problems of this shape, such as --shape 8 for eight bits."""
    json: Json = None
    tolerance: float = 1e-6
    """How far apart the bounds on the share of wrong pairs may be, where the model is not certified."""
    digits_only: bool = False
    """For ten-digit adders: judge the eleven digits, as AdderBoard does, and not the EOS after them."""
    minutes: float | None = 15.0
    """How many minutes to try (None: as many as it takes); what is not proved by then stays undecided."""
    check: OptionalFile = None
    """Verify this certificate against the model instead of making one; alone, the one that is stored with the model."""
    card: bool = False
    """Keep the certificate in the model's zoo entry, with a line on its card, if it is certified or refuted."""
    standalone: OptionalOutput = None
    """Also write a file for certificates/check.py, which proves the claim without this package."""
    force: Force = False

    def run(self) -> int:
        from interp.cli.own_files import load_model
        from interp.core.replies import reply_of
        from interp.proofs import certify, check_certificate, load_certificate
        from interp.proofs.standalone import require_checkable, write_standalone
        from interp.proofs.stored_certificates import store
        from models.zoo import read_entry

        one_thread()
        if self.card:
            read_entry(self.model)  # refuses a model without an entry, and so without a card, before the work
        model = load_model(self.model)
        task = shaped(model.task, self.shape) if self.shape else None
        if self.standalone is not None:
            require_checkable(model, self.arithmetic, "digits" if self.digits_only else "all")
        if self.check is not None:
            certificate = self._stored() if str(self.check) == STORED else load_certificate(self.check)
            certificate = check_certificate(certificate, model, task)
            print(f"holds: {certificate.sentence()}")
        else:
            targets = "digits" if self.digits_only else "all"
            certificate = certify(
                model,
                arithmetic=self.arithmetic,
                task=task,
                tolerance=self.tolerance,
                targets=targets,
                minutes=self.minutes,
            )
            print(certificate.sentence())
        write_reply(self.json, reply_of(certificate))
        if self.standalone is not None:
            write_standalone(certificate, model, self.standalone)
        if self.card:
            print(f"written to {store(self.model, certificate)}")
        return certificate.exit_status

    def _stored(self) -> Verdict:
        from interp.proofs.stored_certificates import stored_verdict

        found = stored_verdict(self.model)
        if found is None:
            raise UserError(f"No certificate is stored with {self.model}; --check FILE takes one of your own.")
        return found
