"""What there is to tell of a model, in chapters, which the report shows one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

import models
from interp.proofs.certify import certified_at_best, certify
from interp.proofs.coupled_grid import load_certified_grids
from interp.proofs.stored_certificates import stored_verdict
from interp.proofs.verdict import Verdict
from interp.site.facts import certificate_words
from interp.site.pages.items import paragraph
from models.errors import UserError
from models.evaluation import score
from models.families.hand_built.position_coupling_addition import NAME as HAND_BUILT
from models.registry import ModelSpec, get_spec, is_constructed
from models.tasks.ten_digits import LIMIT
from models.transformer.hooked import HookedModel

SMALL = 1_000  # most parameters of a model whose numbers and neurons are all shown


@dataclass(frozen=True, eq=False)
class Story:
    """A model to tell of. Probes use ``n`` problems, drawn with ``seed``; what several chapters need is found once."""

    name: str
    model: HookedModel
    n: int
    seed: int

    @classmethod
    def of(cls, name: str, n: int, seed: int = 0, load: Callable[[str], HookedModel] = models.load) -> Story:
        """Load a model to tell of. Raises a UserError if it cannot be loaded."""
        return cls(name, load(name), n, seed)

    @cached_property
    def entry(self) -> dict[str, Any] | None:
        """The model's entry in the zoo; None if it has none."""
        return models.zoo.read_entry(self.name) if self.name in models.zoo_names() else None

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The model's architecture in the registry; None for a model that came in from elsewhere."""
        name = str(getattr(self.model, "registered", None))
        return get_spec(name) if name in models.names(sweeps=True) else None

    @cached_property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def small(self) -> bool:
        return self.parameters <= SMALL

    @cached_property
    def score(self) -> dict[str, Any] | None:
        """The stored score of an entry, or that of a ten-digit construction on its test problems; None if neither."""
        if self.entry is not None:
            return self.entry["score"]
        adds = is_constructed(self.name) and self.model.task.pairs_below == LIMIT
        return score(self.model).to_dict() if adds else None

    @cached_property
    def certificate(self) -> Verdict | None:
        """The stored certificate of an entry, or what is proved of a construction now; None if there is neither."""
        if self.entry is not None:
            return stored_verdict(self.name)
        if not is_constructed(self.name) or self.name == HAND_BUILT:  # which has one proof for each size
            return None
        return (certified_at_best if self.model.task.pairs_below == LIMIT else certify)(self.model)

    @property
    def proved(self) -> str:
        """A sentence that says what is proved of all inputs; empty if nothing is."""
        if self.name == HAND_BUILT:
            return load_certified_grids()["float32"].sentence()
        return "" if self.certificate is None else certificate_words(self.certificate)

    @cached_property
    def twin(self) -> HookedModel | None:
        """The same model with numbers set by hand, if there is one."""
        name = f"{self.name}-by-hand"
        return models.build(name) if name in models.names(sweeps=True) else None


@dataclass(frozen=True)
class Chapter:
    """A question, and the function that answers it of a story's model."""

    anchor: str
    heading: str
    answer: Callable[[Story], list[Markup]]
    about: str = ""

    def items(self, story: Story) -> list[Markup]:
        """The answer: empty if the question does not apply, and the reason if a probe refuses to answer."""
        try:
            return self.answer(story)
        except UserError as refused:
            return [paragraph(f"This question was refused: {refused}")]


#: Chapters that other packages add when they are imported (:mod:`models.plugins`), by the anchor that they follow.
ADDED: dict[str, list[Chapter]] = {}


def add_chapter(chapter: Chapter, after: str) -> None:
    """Show a chapter after those of this package with the anchor ``after``."""
    ADDED.setdefault(after, []).append(chapter)
