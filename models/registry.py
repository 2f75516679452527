"""Named models. Any file may :func:`register` one; those of this project are named in :data:`REGISTERING`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from models.calls.argument_kinds import Seed
from models.calls.bound_arguments import typed
from models.calls.checked_calls import checked
from models.errors import UserError, unknown_name

if TYPE_CHECKING:
    from models.tasks.task import Task
    from models.training.recipes import Recipe
    from models.transformer.arithmetic_transformer import ArithmeticTransformer
    from models.weight_maps.weight_map import WeightMap


#: The modules that register models; they are imported before a name is looked for.
REGISTERING = (
    "models.families.addlm",
    "models.families.addlm_adder",
    "models.families.arc_decoder",
    "models.families.attention_only",
    "models.families.column_arithmetic",
    "models.families.hand_built.adders",
    "models.families.hand_built.microadder_by_hand",
    "models.families.hand_built.modular_programs",
    "models.families.hand_built.position_coupling_addition",
    "models.families.hand_built.position_coupling_multiplication",
    "models.families.hand_built.position_coupling_parity",
    "models.families.low_rank_adder",
    "models.families.modular",
    "models.families.position_coupling_variants",
    "models.families.subtractors",
    "models.families.toygpt",
)

TRAINED, PUBLISHED, BY_HAND = "trained", "published numbers", "by hand"
#: Words in ``ModelSpec.source`` that name a paper, in the order in which models are listed.
PAPERS = ("MicroAdder", "456-Parameter", "Position Coupling", "ToyGPT", "AddLM")


@dataclass(frozen=True)
class Published:
    """How the numbers of a model came about that others trained and published.

    Attributes:
        start: "random", "placed" (some numbers begin at chosen values), "warm" (from another model), or "not known".
        begun: what its training began from, in words.
        selected_on: the problems on which its numbers were selected, in words.
        on_test: whether they include problems of the test set, whose score then bounds no error rate.
    """

    start: str
    begun: str
    selected_on: str
    on_test: bool


@dataclass(frozen=True)
class ModelSpec:
    """What a name stands for: a weight map, the task it is for, and the recipe that trains it.

    ``options`` are the options of this model that :func:`build` takes, with their defaults; the factories of the weight
    map and the task get all of them.
    """

    name: str
    weight_map: Callable[..., WeightMap]
    task: Callable[..., Task]
    recipe: Recipe | None  # None for models that are not trained here
    source: str  # paper and section
    options: dict[str, Any] = field(default_factory=dict)
    sweep: bool = False  # one of many variants behind a figure; listed only on request
    published: Published | None = None  # others trained it, and its numbers are as they published them

    @property
    def paper(self) -> str | None:
        """The one of :data:`PAPERS` that ``source`` names, or None if it names none."""
        return next((paper for paper in PAPERS if paper in self.source), None)

    @property
    def made(self) -> str:
        """Who found the numbers: "trained" (here), "published numbers" (others trained it), or "by hand"."""
        return TRAINED if self.recipe is not None else PUBLISHED if self.published is not None else BY_HAND


_REGISTRY: dict[str, ModelSpec] = {}


@cache
def _import_models() -> None:
    for module in REGISTERING:
        import_module(module)


def _registered() -> dict[str, ModelSpec]:
    """All models; the modules that register them are imported at the first call."""
    _import_models()
    return _REGISTRY


@checked
def register(spec: ModelSpec) -> ModelSpec:
    """Register a model under its name. Raises UserError if the name is taken."""
    if spec.name in _REGISTRY:
        raise UserError(f"A model named {spec.name!r} is registered already.")
    _REGISTRY[spec.name] = spec
    return spec


OWN = "trained by models.train"  # the source of a model that :func:`models.train` registers for its own run


def is_own(name: str) -> bool:
    """Whether a name was registered by :func:`register_own`."""
    return name in _REGISTRY and _REGISTRY[name].source == OWN


def register_own(spec: ModelSpec) -> None:
    """Register a model for one run; a later one of the same name takes its place."""
    _REGISTRY.pop(spec.name, None)
    register(spec)


@typed
def names(sweeps: bool = False) -> list[str]:
    """The names of registered models; with ``sweeps`` also those that only figures compare."""
    return [name for name, spec in _registered().items() if sweeps or not spec.sweep]


def is_constructed(name: object) -> bool:
    """Whether this is the name of a model that is not trained, because its numbers are set by hand."""
    spec = _registered().get(name) if isinstance(name, str) else None
    return spec is not None and spec.made == BY_HAND and spec.source != OWN


def constructed() -> list[str]:
    """The names of models that are not trained, because their numbers are set by hand."""
    return [name for name in _registered() if is_constructed(name)]


def by_paper(names: Iterable[str]) -> list[str]:
    """Registered names sorted by paper in the order of :data:`PAPERS`, others last; otherwise the order stays."""
    papers: list[str | None] = [*PAPERS, None]
    return sorted(names, key=lambda name: papers.index(get_spec(name).paper))


@typed
def get_spec(name: str) -> ModelSpec:
    """What a name stands for. Raises UserError with the closest match."""
    if name not in _registered():
        raise unknown_name("model", name, _registered())
    return _registered()[name]


def recipe_of(name: str) -> Recipe:
    """The recipe that trains a registered model.

    Raises:
        UserError: as :func:`get_spec`, and for a model that is not trained here.
    """
    spec = get_spec(name)
    if spec.recipe is None:
        why = "its numbers are as others published them" if spec.published else "its weights are constructed"
        raise UserError(f"{name} is not trained here: {why}.")
    return spec.recipe


def parameter_count(name: str) -> int:
    """How many free parameters a registered model has. Raises UserError as :func:`get_spec` does."""
    return numbers_of(name)[0]


def numbers_of(name: str) -> tuple[int, Mapping[str, float] | None]:
    """How many free parameters a registered model has, and by name the constants in code that act like weights (None if
    they are not listed). Raises UserError as :func:`get_spec` does."""
    spec = get_spec(name)
    # Nothing is drawn. A construction is cheap to compute; on the meta device it would import a compiler.
    with torch.device("cpu" if spec.recipe is None else "meta"):
        weight_map = spec.weight_map(**spec.options)
    return sum(p.numel() for p in weight_map.parameters()), weight_map.constants


@checked
def build(name: str, seed: Seed = 0, **options: Any) -> ArithmeticTransformer:
    """A registered model with fresh parameters drawn from ``seed``.

    Args:
        name: one of :func:`names`.
        seed: draws the parameters; models without any are the same for every seed.
        options: options of this model (``get_spec(name).options``), such as
            ``build("position-coupling-hand-built", max_operands=3, max_digits=5)``.

    Raises:
        UserError: an unknown name or option, with the closest match, or a value that an option cannot have.
    """
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    spec = get_spec(name)
    for option in options:
        if option not in spec.options:
            raise unknown_name(f"option of {name}", option, spec.options)
    chosen = spec.options | options
    weight_map = spec.weight_map(**chosen)
    weight_map.initialise(torch.Generator().manual_seed(seed))
    return ArithmeticTransformer(weight_map, spec.task(**chosen), name=name)
