"""Write certificates that can be checked without this project: weights, a claim, and one hint.

``certificates/check.py`` reads such a file and proves its claim by integer arithmetic of its own, with nothing but
Python's standard library. It trusts nothing here: what this module writes can make that proof fail, but cannot make a
wrong claim pass.
"""

from __future__ import annotations

from pathlib import Path

from interp.proofs.columns.adder_weights import AdderWeights, read_adder
from interp.proofs.columns.column_method import check_one_layer
from interp.proofs.columns.ratio_attention import read_ratio_attention
from interp.proofs.numbers.rounded_operations import FLOAT32
from interp.proofs.verdict.verdict import ArithmeticName, Targets, Verdict
from models import ArithmeticTransformer, UserError
from models.files import write_json_atomic
from models.transformer import HookedModel, model_name

FORMAT = 1
#: The tasks that the checker knows.
TASKS = (
    "ten-digit-addition",
    "ten-digit-addition-unended",
    "padded-addition",
    "ten-digit-subtraction",
    "padded-subtraction",
    "complement-subtraction",
)
#: The share of the smallest proved lead that is claimed, as the checker's bounds differ from those of this package.
SHARE = 0.5


def require_checkable(
    model: HookedModel, arithmetic: ArithmeticName | None = None, targets: Targets = "all"
) -> AdderWeights:
    """The adder, if the checker knows such models and claims; to be asked before the work of a proof.

    Raises:
        UserError: parts that the checker does not know (biases, LayerNorm, ReLU, another format of the task), or a
            claim about something else than all tokens with float32 rounding.
    """
    if arithmetic not in (None, "float32") or targets != "all":
        raise UserError("Only a certificate of all tokens, with float32 rounding, can be written for the checker.")
    task, layers = getattr(model, "task", None), model.cfg.n_layers
    if getattr(task, "name", None) not in TASKS or layers != 1:
        raise UserError(
            f"The checker knows adders and subtractors of ten digits and one layer, on {', '.join(TASKS)}; "
            f"{model_name(model)} has {layers} layer{'s' * (layers != 1)}, on {getattr(task, 'name', 'no task')}."
        )
    adder = read_adder(model)
    unknown = [name for name in adder.stored if ".b" in name and name in adder.model.weight_shapes]
    rms = adder.has_norms and not (adder.centred or adder.model.config.norm_eps_outside)
    if unknown or not rms or adder.model.config.act_fn != "gelu":
        raise UserError(
            f"The checker knows adders and subtractors with RMS norms, gelu and no biases, and {model_name(model)} has "
            "others."
        )
    return adder


def write_standalone(certificate: Verdict, model: ArithmeticTransformer, path: str | Path) -> Path:
    """Write the claim that a model adds or subtracts all pairs rightly, with its weights as hexadecimal floats.

    The hint is a basis of what attention writes; a bad one makes the checker's bounds useless, not wrong.

    Raises:
        UserError: as :func:`require_checkable`; a certificate that is not about these weights, or does not hold.
    """
    adder = require_checkable(model, certificate.arithmetic, certificate.targets)
    if certificate.status != "certified":
        raise UserError(f"{certificate.model} is not certified, so that there is nothing to write for the checker.")
    config = model.config.to_dict() | {"task": model.task.name}
    weights = {name: value for name, value in adder.stored.items() if name in model.weight_shapes}
    check_one_layer(certificate, model)
    content = {
        "format": FORMAT,
        "model": certificate.model,
        "margin": (SHARE * certificate.lower_bound).hex(),
        "fingerprint": adder.fingerprint,
        "config": config,
        "basis": [[x.hex() for x in row] for row in read_ratio_attention(adder, FLOAT32).basis.tolist()],
        "weights": {
            name: [x.hex() for x in value.cpu().double().flatten().tolist()] for name, value in weights.items()
        },
    }
    write_json_atomic(path, content)
    return Path(path)
