"""What there is to tell of a model, in chapters, which the report shows one after the other."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from markupsafe import Markup

import models
from interp.proofs.certify import certified_at_best, certify
from interp.proofs.stored_verdicts import hand_built_sums, stored_verdict
from interp.proofs.verdict.verdict import Verdict
from interp.site.facts import certificate_words
from interp.site.pages.items import paragraph
from models.errors import UserError
from models.evaluation import score
from models.families.hand_built.position_coupling_addition import NAME as HAND_BUILT
from models.registry import ModelSpec, get_spec, is_constructed
from models.tasks import LIMIT
from models.tasks.named.addition import adds_pairs_below
from models.transformer import HookedModel, own_name

SMALL = 1_000  # most parameters of a model whose numbers and neurons are all shown
MINUTES = 1.0  # in which a proof is tried of a model that comes without one


@dataclass(frozen=True, eq=False)
class Story:
    """A model to tell of. Probes use ``n`` problems, drawn with ``seed``; what several chapters need is found once.

    ``name`` is what it was asked for by, a name or a path, and ``flags`` is what a command needs in addition. Questions
    that were refused are in ``refused``, with the reason.
    """

    name: str
    model: HookedModel
    n: int
    seed: int
    flags: str = ""
    refused: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, n: int, seed: int = 0, load: Callable[[str], HookedModel] = models.load, flags: str = ""
    ) -> Story:
        """Load a model to tell of. Raises a UserError if it cannot be loaded."""
        return cls(name, load(name), n, seed, flags)

    def command(self, words: str) -> str:
        """A command about the model: "interp certify NAME --task ..."."""
        return f"{words} {shlex.quote(self.name)}{self.flags}"

    @property
    def title(self) -> str:
        """What the model is called in text."""
        return own_name(self.model) if self.own else self.name

    @property
    def own(self) -> bool:
        """Whether it is neither an entry of the zoo nor a construction, so that nothing is stored about it."""
        return self.entry is None and not is_constructed(self.name)

    @cached_property
    def variables(self) -> dict[str, Any]:
        """The variables of one problem of the model's task, each [1, column]; none where it has no problems."""
        task = self.model.task
        with contextlib.suppress(UserError):
            return task.variables(task.sample(1, torch.Generator().manual_seed(0)))
        return {}

    @cached_property
    def signal(self) -> str:
        """What goes from column to column: "carry" or "borrow"; empty if nothing does."""
        return next((word for word in ("carry", "borrow") if f"{word}_in" in self.variables), "")

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
        adds = is_constructed(self.name) and adds_pairs_below(self.model.task) == LIMIT
        return score(self.model).to_dict() if adds else None

    @cached_property
    def certificate(self) -> Verdict | None:
        """The stored certificate of an entry, or what is proved of another model now; None if there is neither."""
        if self.entry is not None:
            return stored_verdict(self.name)
        if self.name == HAND_BUILT:  # whose sizes are proved in a minute or two
            return hand_built_sums()
        if self.own:
            try:
                return certify(self.model, minutes=MINUTES)
            except UserError as refused:
                self.refused["Is it right on all inputs?"] = str(refused)
                return None
        return (certified_at_best if adds_pairs_below(self.model.task) == LIMIT else certify)(self.model)

    @property
    def proved(self) -> str:
        """A sentence that says what is proved of all inputs; empty if nothing is."""
        return "" if self.certificate is None else certificate_words(self.certificate)

    @cached_property
    def twin(self) -> HookedModel | None:
        """The same model with numbers set by hand, if there is one."""
        name = f"{self.name}-by-hand"
        return models.build(name) if name in models.names(sweeps=True) else None


Words = str | Callable[[Story], str]


@dataclass(frozen=True)
class Chapter:
    """A question, and the function that answers it of a story's model. Its words may depend on the story."""

    anchor: str
    heading: Words
    answer: Callable[[Story], list[Markup]]
    about: Words = ""

    def items(self, story: Story) -> list[Markup]:
        """The answer, below what there is to know first; empty if the question does not apply or is refused."""
        try:
            found = self.answer(story)
        except UserError as refused:
            story.refused[self.heading_of(story)] = str(refused)
            return []
        about = self.about if isinstance(self.about, str) else self.about(story)
        return [paragraph(about), *found] if about and found else found

    def heading_of(self, story: Story) -> str:
        return self.heading if isinstance(self.heading, str) else self.heading(story)


#: Chapters that other packages add when they are imported (:mod:`models.plugins`), by the anchor that they follow.
ADDED: dict[str, list[Chapter]] = {}


def add_chapter(chapter: Chapter, after: str) -> None:
    """Show a chapter after those of this package with the anchor ``after``."""
    ADDED.setdefault(after, []).append(chapter)
