"""Public AdderBoard models: ``models.load("path/to/submission.py", trust=True)``.

Such a file is a program. It runs in a process of its own, confined by bubblewrap unless another way is asked for
(:mod:`studies.adderboard.isolation`), in which a family
(:mod:`studies.adderboard.families`) says how its parts become effective weights. Before the model with these
weights is returned, its logits (or choices) are compared with those of the file's own forward pass on beginnings of
some problems, and its greedy answers with the file's own on some dozen pairs. A model that differs is refused.
"""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.errors import UserError
from studies.adderboard.isolation import MEMORY, SECONDS, UNCONFINED, require_shelter, run_isolated

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

__all__ = ["SubmissionFacts", "load_submission", "submission_of"]

LARGEST_TEXT = 1 << 20  # bytes
LARGEST_SIZE = 4096  # of anything in a config, and of a sequence
MOST_PARAMETERS = 1 << 24  # as many as an answer can hold
LONGEST_REMARK, MOST_REMARKS = 300, 20  # characters of each text of a file about itself, and how many
#: How far logits may differ, relative to the largest spread of one row: in float64, and where a file computes in
#: float32 whatever it is asked.
TOLERANCE, COARSE = 1e-6, 1e-4


@dataclass(frozen=True)
class SubmissionFacts:
    """What is known about a file whose model was loaded.

    Attributes:
        family: its architecture.
        free, bits: how many numbers its own model holds as parameters, and their size as stored.
        metadata: what the file says about itself; may be empty.
        remarks: what was changed or left out, or could not be checked, in whole sentences.
    """

    path: Path
    family: str
    free: int
    bits: int
    metadata: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def stated(self) -> int | None:
        """How many parameters the author counts, by the file's text or else its name; None if neither says."""
        said = self.metadata.get("params")
        return said if type(said) is int and said >= 0 else count_in_name(self.path)


def submission_of(model: ArithmeticTransformer) -> SubmissionFacts | None:
    """The submission that a model was loaded from; None for another model."""
    return getattr(model.weight_map, "submission", None)


def count_in_name(path: Path) -> int | None:
    """The number before a last "p" of a file's name."""
    match = re.search(r"(\d+)p$", path.stem)
    return int(match[1]) if match else None


def load_submission(
    path: str | Path,
    checkpoints: str | Path | None = None,
    trust: bool | str = False,
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> ArithmeticTransformer:
    """The model of a public AdderBoard submission; :func:`submission_of` says what is known about its file.

    Args:
        checkpoints: a folder in which a checkpoint that the text names is looked for by the ending of its name, if it
            is not next to the text.
        trust: that the file may be run, and how: True is under bubblewrap, "unconfined" with all that its user may do,
            and another text is a command to run it under (:func:`studies.adderboard.isolation.run_isolated`).
        seconds, memory: what it may take, see :func:`studies.adderboard.isolation.run_isolated`.

    Raises:
        UserError: no ``trust``, or one that cannot be had here; a file that fails or takes too much, an unknown
            architecture, weights that are no numbers, or logits or answers that are not the loaded model's.
            One sentence says which.
    """
    path = Path(path)
    require_trust(trust, f"{path} is a program, which has to be run to load its model")
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    if path.stat().st_size > LARGEST_TEXT:
        raise UserError(f"{path} is larger than a submission can be ({LARGEST_TEXT >> 20} MB).")
    try:
        named = _named_checkpoint(path.read_text(encoding="utf-8"))
        checkpoint = _found(named, path, checkpoints) if named else None
        with TemporaryDirectory(prefix="submission-") as folder:
            run = Path(shutil.copy(path, folder))  # the process sees this folder, and not the one it lies in
            if named and checkpoint is not None:
                shutil.copy(checkpoint, Path(folder, named))
            pairs = asked_pairs()
            child, given = "studies.adderboard.child:describe", {"path": str(run), "pairs": pairs}
            tensors, facts = run_isolated(child, given, seconds, memory, trust, Path(folder))
        model = converted(path, tensors, facts, pairs, checkpoint)
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text in UTF-8.") from None
    except UserError as error:
        raise UserError(f"{path} cannot be read as a model: {str(error).rstrip('.')}.") from None
    found: Any = model.weight_map
    found.submission = replace(found.submission, remarks=(*found.submission.remarks, *how_it_ran(trust)))
    return model


def how_it_ran(trust: bool | str) -> tuple[str, ...]:
    """A remark on a file that was not run under bubblewrap."""
    if trust == UNCONFINED:
        return ("It was run unconfined: it could do what its user can, on this machine and on its network.",)
    return () if trust is True else (f"It was run under the command {_told(trust)!r}.",)


def require_trust(trust: bool | str, what: str) -> None:
    """Raise UserError, beginning with ``what``, unless programs may be run and can be run in that way."""
    if not trust:
        raise UserError(f"{what}; that needs trust=True (on the command line, --trust).")
    try:
        require_shelter(trust)
    except UserError as error:
        raise UserError(f"{what}; {error}.") from None


def asked_pairs(n: int = 20) -> list[tuple[int, int]]:
    """Pairs that a submission is asked: with long carry chains and without, and ``n`` uniform ones."""
    draw = random.Random(0)
    chains = [(10**k - 1, 1) for k in range(1, 11)] + [(9999999999, 9999999999), (5555555555, 4444444445)]
    return [
        (0, 0),
        (1234567890, 8765432109),
        *chains,
        *((draw.randrange(10**10), draw.randrange(10**10)) for _ in range(n)),
    ]


def converted(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], pairs: list[tuple[int, int]], checkpoint: Path | None
) -> ArithmeticTransformer:
    """The model in what a file's process sent back, which is checked as the work of a stranger.

    Raises:
        UserError: the logits or answers differ from those of the file, or the file gives no model.
    """
    try:
        return _converted(path, tensors, facts, pairs, checkpoint)
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise UserError("its process sent back something that is no answer") from error


def _converted(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], pairs: list[tuple[int, int]], checkpoint: Path | None
) -> ArithmeticTransformer:
    from studies.checkpoints import load_published

    remarks = [_told(remark) for remark in _listed(facts["remarks"])]
    about = {_told(name): _told(value) for name, value in list(dict(facts["metadata"]).items())[:MOST_REMARKS]}
    known = {"free": _count(facts["free"]), "bits": _count(facts["bits"]), "metadata": about}
    family = facts["family"]
    if family is not None:
        model = _adopted(path, tensors, facts)
    elif checkpoint is None or (model := load_published(checkpoint)) is None:
        raise UserError("its architecture is none that is known (docs/board.md lists them)")
    for (a, b), theirs, ours in zip(pairs, facts["answers"], answers_of(model, pairs), strict=True):
        if ours != int(theirs):
            raise UserError(f"it says {int(theirs)} for {a} + {b}, and what was read of it says {ours}")
    name = str(family or type(model.weight_map).__name__)
    weights: Any = model.weight_map
    weights.submission = SubmissionFacts(path, name, remarks=tuple(remarks), **known)
    return model


def _count(value: Any) -> int:
    """A number of parameters or bits. Raises ValueError for what is none."""
    if type(value) is not int or not 0 <= value <= 64 * MOST_PARAMETERS:
        raise ValueError(value)
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value[:MOST_REMARKS]


def _told(value: Any) -> Any:
    """What a file says of itself: a number that can be printed, else a text of one line, no longer than a remark."""
    if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 2**63):
        return value
    line = "".join(c if c.isprintable() else " " for c in str(value)[:LONGEST_REMARK])
    return " ".join(line.split())


def _adopted(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> ArithmeticTransformer:
    """A model with the weights as the file's numbers give them, whose forward pass was compared."""
    from models.transformer.arithmetic_transformer import ArithmeticTransformer
    from models.transformer.config import TransformerConfig
    from models.weight_maps.dense import DenseWeights
    from studies.adderboard.framed_addition import Frame, framed_addition

    frame: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in facts["frame"].items()}
    task = framed_addition(Frame(**frame))
    own, wide = (_under(prefix, tensors) for prefix in ("own/", "wide/"))
    own_logits, wide_logits = own.pop("logits"), wide.pop("logits", None)
    if wide and own.keys() != wide.keys():
        raise UserError("it has other weights when it computes in float64")
    for name, value in own.items():
        if not (value.isfinite() | (value.isneginf() & name.endswith("attn.bias"))).all():
            raise UserError(f"its weight {name} is not finite")
        if wide and not torch.allclose(value.double(), wide[name].double(), rtol=0, atol=COARSE * _largest(value)):
            raise UserError(f"its weight {name} has another value when it computes in float64")
    dtype = "float64" if own["embed.W_E"].dtype == torch.float64 else "float32"
    fields = {"n_layers": 1, "d_vocab": task.d_vocab, "n_ctx": task.input_length, "dtype": dtype} | facts["config"]
    if any(isinstance(value, int) and value > LARGEST_SIZE for value in fields.values()):
        raise UserError("its sizes are not those of a submission")
    config = TransformerConfig(**fields)
    model = ArithmeticTransformer(DenseWeights.holding(config, own), task, name=path.stem)
    compared = ArithmeticTransformer(DenseWeights.holding(config, wide), task) if wide else model
    _require_equal_logits(compared, own_logits if wide_logits is None else wide_logits, facts["family"])
    return model


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _largest(value: Tensor) -> float:
    return float(value[value.isfinite()].abs().max())


@torch.no_grad()
def _require_equal_logits(model: ArithmeticTransformer, logits: Tensor, family: str) -> None:
    """Raise UserError unless the model's logits, or its choices where the file gives choices, are the file's."""
    from studies.adderboard.child import compared_rows

    task: Any = model.task
    tolerance = TOLERANCE if model.dtype == torch.float64 else COARSE
    for row, theirs in zip(compared_rows(task), logits, strict=True):
        ours = model(row)[0, -1]
        if not theirs.is_floating_point():  # it returns the token itself
            agrees = int(ours.argmax()) == int(theirs)
        else:
            size = max(float(theirs.max() - theirs[theirs > -1e9].min()), 1e-9)
            agrees = ours.shape == theirs.shape and bool(
                ((ours - theirs).abs() <= tolerance * size + 1e-13 * theirs.abs()).all()
            )
        if not agrees:
            prompt = "".join(task.vocabulary[token] for token in row[0].tolist())
            known = f"what is known of its architecture ({family})"
            raise UserError(f"after {prompt} its forward pass gives something else than {known}")


def answers_of(model: ArithmeticTransformer, pairs: list[tuple[int, int]]) -> list[int]:
    """The model's answers, greedily decoded."""
    from models.evaluation import predict

    return model.task.decode(predict(model, pairs, method="greedy"))


def _named_checkpoint(text: str) -> str | None:
    """The name of the checkpoint that a text loads, found among its quoted texts."""
    match = re.search(r"""["']([\w.-]+\.(?:pt|pth))["']""", text)
    return match[1] if match else None


def _found(named: str, path: Path, checkpoints: str | Path | None) -> Path | None:
    if (beside := path.parent / named).is_file():
        return beside
    ending = "_" + named.rsplit("_", 1)[-1]
    folder = Path(checkpoints) if checkpoints is not None else None
    found = sorted(folder.glob(f"*{ending}")) if folder is not None and folder.is_dir() else []
    return found[0] if len(found) == 1 else None
