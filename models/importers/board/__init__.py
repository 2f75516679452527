"""Public AdderBoard models: ``models.load("path/to/submission.py")``.

The file's text is evaluated by :mod:`models.importers.board.interpreter` and never run. Exactly its parameters become
the parameters of the model here; a family (:mod:`models.importers.board.families`) says how they become effective
weights. Before a model is returned, its logits (or choices) are compared with the file's own forward pass in float64 on
prefixes of some problems, and its greedy answers with the file's own. A model that differs is refused.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from models.config import TransformerConfig
from models.errors import UserError
from models.importers.board.families import FAMILIES
from models.importers.board.families.parts import Family
from models.importers.board.reading import PAIRS, Submission, read, reading_as
from models.parts.weights import Weights
from models.tasks.framed_addition import FramedAddition
from models.transformer import ArithmeticTransformer
from models.weight_maps.weight_map import WeightMap

__all__ = ["SubmissionWeights", "family_of", "load_submission", "stated_parameters"]

#: How far logits may differ, relative to the largest spread of one row, in float64.
TOLERANCE = 1e-6
_CHECKED = ((31, 0), (0, 5), (9999999999, 1), (1234567890, 8765432109), (5050505050, 4949494949))


class SubmissionWeights(WeightMap):
    """A submission's own parameters, from which its family computes effective weights."""

    def __init__(self, cfg: TransformerConfig, submission: Submission, family: Family):
        super().__init__(cfg)
        self.submission, self.family = submission, family
        for name, value in submission.parameters.items():
            if not isinstance(value, nn.Parameter):
                raise UserError("its parameters are not those of a module")
            self.register_parameter(name.replace(".", "/"), value)

    def forward(self) -> Weights:
        like = next(self.parameters()).detach()
        if not like.is_floating_point() or like.dtype not in (torch.float32, torch.float64):
            like = like.float()
        with reading_as(like.dtype):
            self.submission.interpreter.steps = 0
            found = self.family.weights(self.submission, like, self.config.n_ctx)
        return {name: value.to(like.dtype).contiguous() for name, value in found.items()}

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing to do: the numbers are the file's."""


def family_of(submission: Submission) -> Family:
    """The family of a file. Raises UserError for an architecture that belongs to none."""
    for family in FAMILIES:
        if family.recognises(submission):
            return family
    names = ", ".join(family.name for family in FAMILIES)
    raise UserError(f"its architecture is none that is known ({names})")


def load_submission(path: str | Path, checkpoints: str | Path | None = None) -> ArithmeticTransformer:
    """A model with the numbers of a public AdderBoard submission, as ``model.weight_map.submission`` read them.

    If the numbers are in a checkpoint that the text names, it is looked for next to the text, and in the folder
    ``checkpoints`` by the ending of its name; it is read as safely as in :func:`models.importers.load_published`.

    Raises:
        UserError: a file that cannot be read, an unknown architecture, missing numbers, or a forward pass that differs
            from the imported model's. One sentence says which.
    """
    path = Path(path)
    try:
        submission = read(path)
    except UserError as error:
        if (found := _checkpoint_of(path, checkpoints)) is not None:
            from models.importers import load_published

            if (published := load_published(found)) is not None:
                return published
        if (named := _named_checkpoint(path)) is not None:
            raise UserError(
                f"{path} cannot be read as a model: its numbers are in {named}, which is not there."
            ) from None
        raise error
    try:
        return _converted(submission)
    except UserError as error:
        raise UserError(f"{path} cannot be read as a model: {str(error).rstrip('.')}.") from None


def stated_parameters(model: ArithmeticTransformer) -> int | None:
    """How many parameters the author counts, by the file's text or else its name; None if neither says."""
    weights = model.weight_map
    if not isinstance(weights, SubmissionWeights):
        return None
    said = weights.submission.metadata.get("params")
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    return count_in_name(weights.submission.path)


def count_in_name(path: Path) -> int | None:
    """The number before a last "p" of a file's name."""
    match = re.search(r"(\d+)p$", path.stem)
    return int(match[1]) if match else None


def _converted(submission: Submission) -> ArithmeticTransformer:
    family = family_of(submission)
    _as_parameters(submission)
    task = FramedAddition(submission.frame)
    first = next(iter(submission.parameters.values()), None)
    if first is None:
        raise UserError("it holds no numbers")
    dtype = "float64" if first.dtype == torch.float64 else "float32"
    fields = {"n_layers": 1, "d_vocab": task.d_vocab, "n_ctx": task.input_length, "dtype": dtype}
    config = TransformerConfig(**(fields | family.config(submission)))
    weights = SubmissionWeights(config, submission, family)
    model = ArithmeticTransformer(weights, task, name=submission.path.stem)
    _require_equal(model, submission)
    return model


def _as_parameters(submission: Submission) -> None:
    """Turn the tables of an object that is not a module into parameters, in place."""
    model = submission.model
    for name, value in list(submission.parameters.items()):
        if not isinstance(value, nn.Parameter):
            submission.parameters[name] = parameter = nn.Parameter(value.detach().clone(), requires_grad=False)
            holder, last = model, name
            if "." in name:
                prefix, last = name.rsplit(".", 1)
                holder = submission.get(prefix)
            holder.values[last] = parameter


@torch.no_grad()
def _require_equal(model: ArithmeticTransformer, submission: Submission) -> None:
    """Raise UserError unless the model computes what the file does."""
    task, dtype = model.task, model.dtype
    model.double()
    try:
        for tokens in task.encode(list(_CHECKED)).split(1):
            for length in (task.query_positions[0] + 1, task.input_length):
                ours = model(tokens[:, :length])[0, -1]
                theirs = submission.last_output(tokens[:, :length], torch.float64)
                if not _agrees(ours, theirs):
                    raise UserError(
                        "its forward pass computes something else than what is known of its architecture "
                        f"({family_of(submission).name})"
                    )
    finally:
        model.to(dtype)
    for a, b in PAIRS:
        ours, theirs = answer_of(model, a, b), submission.add(a, b)
        if ours != theirs:
            raise UserError(f"it says {theirs} for {a} + {b}, and what was read of it says {ours}")


def answer_of(model: ArithmeticTransformer, a: int, b: int) -> int:
    """The model's answer to a + b, greedily decoded."""
    from models.evaluation import predict

    return model.task.decode(predict(model, [(a, b)], method="greedy"))[0]


def _agrees(ours: Tensor, theirs: Tensor) -> bool:
    if not theirs.is_floating_point():  # it returns the token itself
        return int(ours.argmax()) == int(theirs)
    if ours.shape != theirs.shape:
        return False
    size = max(float(theirs.max() - theirs[theirs > -1e9].min()), 1e-9)
    return bool(((ours - theirs).abs() <= TOLERANCE * size + 1e-13 * theirs.abs()).all())


def _named_checkpoint(path: Path) -> str | None:
    """The name of the checkpoint that a text loads, found among its constants."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return None
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return next((text for text in texts if re.fullmatch(r"[\w.-]+\.(pt|pth)", text)), None)


def _checkpoint_of(path: Path, checkpoints: str | Path | None) -> Path | None:
    named = _named_checkpoint(path)
    if named is None:
        return None
    if (beside := path.parent / named).is_file():
        return beside
    ending = "_" + named.rsplit("_", 1)[-1]
    folder = Path(checkpoints) if checkpoints is not None else None
    found = sorted(folder.glob(f"*{ending}")) if folder is not None and folder.is_dir() else []
    return found[0] if len(found) == 1 else None
