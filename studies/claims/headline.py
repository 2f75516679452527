"""One headline number of a paper: where it stands, what it says, and how ours is found and judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from models.errors import UserError
from models.number_format import p_value, small
from studies.claims.ours import NotStored, Ours
from studies.claims.printed import Printed, read_numbers
from studies.claims.rules import LessFar, Rule, SameRate, Within
from studies.claims.store import Store

Kind = Literal["behaviour", "training"]
KINDS: dict[Kind, str] = {"behaviour": "what models do", "training": "how they are trained"}
Verdict = Literal["reproduced", "compatible", "differs", "undecided", "not testable", "not run", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ERRORS = "errors"  # the unit of a share that is printed as a count


@dataclass(frozen=True)
class Headline:
    """A number or claim of a paper.

    Attributes:
        where: section, table or figure; for a number outside the paper, where it stands.
        claim: one sentence.
        printed: the number or the words of a claim, as printed.
        kind: "behaviour": what a model answers and how it works inside; "training": how it came about (seeds, steps,
            minutes, losses).
        rule: how ours is compared with it; None if it is not run.
        command: computes our number again; empty only if it is not run.
        ours: finds our number in a store, or raises :class:`NotStored`.
        unit: "%" for shares; "errors" for shares that are shown as counts; else a word after the number, or empty.
        quote: the verbatim text in which ``printed`` stands; by default the printed words themselves.
        scale: how ours is smaller than the paper's; such a verdict is "at a smaller scale".
        why: why it is not run, if nothing is stored of it.
        testable: whether any run of this project could settle it. Hours on one kind of machine, weights that were not
            published and speeds of programs that nobody has written are out of reach; ``why`` says which it is.
        note: what a reader must know to read the verdict.
        control: finds the numbers of untrained copies; if one of them passes the rule too, the rule shows nothing.
        fixed_before: whether the rule's bound was written before our number existed. If it was not, the row says so.
    """

    paper: str  # one of studies.papers.PAPERS
    where: str
    claim: str
    printed: str
    rule: Rule | None = None
    command: str = ""
    ours: Callable[[Store], Ours] | None = None
    unit: str = ""
    quote: str = ""
    scale: str = ""
    why: str = ""
    note: str = ""
    kind: Kind = "behaviour"
    control: Callable[[Store], Sequence[Ours]] | None = None
    fixed_before: bool = False
    testable: bool = True

    def __post_init__(self) -> None:
        runs = (self.rule is not None, self.ours is not None, bool(self.command))
        if len(set(runs)) > 1 or not (runs[0] or self.why):
            raise UserError(f"{self.claim!r} needs a rule, a number and a command, or a reason why it is not run.")
        if runs[0] and not self.testable:
            raise UserError(f"{self.claim!r} has a number of ours, so it is testable.")
        if self.printed not in (self.quote or self.printed):
            raise UserError(f"{self.printed!r} is not in its quote {self.quote!r}.")

    @property
    def stated(self) -> tuple[Printed, ...]:
        """The printed numbers; empty for a claim in words. A share without a percent sign is in percent too."""
        if not any(letter.isdigit() for letter in self.printed):
            return ()
        missing = self.unit == "%" and "%" not in self.printed and not isinstance(self.rule, SameRate)
        return read_numbers(f"{self.printed}%" if missing else self.printed)

    def evaluate(self, store: Store) -> Row:
        """Find our number and judge it. If the store lacks it, the row is "not measured", or "not run" for a reason."""
        if self.ours is None or self.rule is None:
            return Row(self, "not run" if self.testable else "not testable", why=self.why)
        try:
            ours = self.ours(store)
        except NotStored as error:
            return Row(self, "not run", why=self.why) if self.why else Row(self, "not measured", why=str(error))
        verdict = self.rule.judge(ours, self.stated)
        if verdict != "reproduced" or self.control is None:
            return Row(self, verdict, ours)
        passes = [self.rule.judge(one, self.stated) == "reproduced" for one in self.control(store)]
        if not any(passes):
            return Row(self, verdict, ours, f"none of {len(passes)} untrained models passes")
        return Row(self, "undecided", ours, f"{sum(passes)} of {len(passes)} untrained models pass as well")

    @property
    def bound_after(self) -> bool:
        """Whether the rule has its own bound that was written when our number was already known.

        A bound of 0 asks for a sign and a bound of 1 for all; those were not chosen.
        """
        own = self.rule.bounds if isinstance(self.rule, Within) else []
        return (len(own) == 2 or any(bound not in (0, 1) for bound in own)) and not self.fixed_before


@dataclass(frozen=True)
class Row:
    """A headline with our number and the verdict."""

    headline: Headline
    verdict: Verdict
    ours: Ours | None = None
    why: str = field(default="")

    @property
    def label(self) -> str:
        """The verdict, with its scale."""
        judged = self.verdict in ("reproduced", "compatible", "differs", "undecided")
        return f"{self.verdict} at a smaller scale" if judged and self.headline.scale else self.verdict

    @property
    def shown(self) -> str:
        """Our number as it is printed here, with its interval; a dash if there is none."""
        if self.ours is None:
            return "–"
        ours, unit = self.ours, self.headline.unit
        text = show(ours.value, unit)
        if ours.counts is not None:
            counts = f"{ours.counts[0]:,} of {ours.counts[1]:,}"
            text = counts if unit == ERRORS else f"{text} ({counts})"
        (low, high), bare = ours.ends, unit if unit == "%" else ""
        if low != high and math.isfinite(low) and math.isfinite(high) and unit != ERRORS:
            text += f" [{show(low, bare)}, {show(high, bare)}]"
        return text

    @property
    def ratio(self) -> float | None:
        """Our number divided by the printed one, if the rule compares them and both are positive."""
        stated, rule = self.headline.stated, self.headline.rule
        if self.ours is None or not stated or isinstance(rule, LessFar) or (isinstance(rule, Within) and rule.bounds):
            return None
        printed = stated[0].value
        if isinstance(rule, SameRate):
            printed /= rule.of or stated[1].value
        return self.ours.value / printed if printed > 0 and self.ours.value > 0 else None

    @property
    def remarks(self) -> str:
        """Everything that has to be said with the numbers."""
        line, ours, parts = self.headline, self.ours, [self.why]
        if ours is not None:
            parts += [line.scale and f"ours: {line.scale}", ours.remark, "" if ours.p is None else p_value(ours.p)]
            parts.append("its bound was written after our number was known" if line.bound_after else "")
        return "; ".join(part for part in (*parts, line.note) if part)

    def to_dict(self) -> dict[str, Any]:
        """The whole row as JSON."""
        line, ours = self.headline, self.ours
        number: dict[str, Any] | None = None
        if ours is not None:
            low, high = (x if math.isfinite(x) else None for x in ours.ends)
            source = ours.provenance
            number = {"value": ours.value, "low": low, "high": high}
            number |= {"counts": ours.counts and list(ours.counts), "p": ours.p, "model": ours.model}
            number |= {"n": source.n, "seed": source.seed, "source": source.source, "strength": source.strength}
        return {
            "paper": line.paper,
            "kind": line.kind,
            "where": line.where,
            "claim": line.claim,
            "printed": line.printed,
            "quote": line.quote or line.printed,
            "unit": line.unit,
            "ours": number,
            "shown": self.shown,
            "verdict": self.label,
            "rule": line.rule.words if line.rule else "",
            "command": line.command,
            "remarks": self.remarks,
        }


def show(value: float, unit: str = "") -> str:
    """A number for readers: shares in percent, integers with commas."""
    if unit == "%":
        return f"{round(100 * value, 3):g}%"
    whole = abs(value - round(value)) < 1e-9 and abs(value) < 1e15
    text = f"{round(value):,}" if whole else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    text = small(value, 4) if "e-" in text else text
    return f"{text} {unit}".rstrip()
