"""The command ``interp train``."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from interp.cli.arguments import ClusterAddress, Force, Json, ended, use_data, use_threads
from interp.cli.outputs import write_reply
from interp.cli.own_files import names_an_object, registered_spec
from models.errors import UserError

if TYPE_CHECKING:
    from models.training.loop import TrainResult


@dataclass(frozen=True)
class Train:
    """Train a model, or resume the run in --out. With a model's name, --help lists every flag of its recipe."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A registered model, e.g. microadder-57, or a model spec in one's own file, as FILE.py:NAME."""
    recipe_name: Annotated[str, tyro.conf.arg(name="recipe", metavar="NAME")] = ""
    """Start from this recipe in place of the model's own; the flags below change it."""
    seeds: int = 1
    """How many seeds to train, stacked."""
    first_seed: int = 0
    """The first of them."""
    out: Path | None = None
    """Run folder; runs/NAME by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    compile: bool | None = None
    """torch.compile the step; by default where a compiler is found and the run is long."""
    threads: int = 1
    """CPU threads; these models are too small for more."""
    minutes: float | None = None
    """Stop and save after this many minutes; the same command resumes."""
    data: Path | None = None
    """A local copy of the text, for models of text."""
    data_parallel: bool = False
    """Split every batch over the processes that `accelerate launch -m interp.cli train ...` started."""
    cluster: ClusterAddress = None
    """Train parts of the seeds as tasks of Ray, on as many machines as there are: auto, local or HOST:PORT."""
    parts_of: int | None = None
    """Seeds in a part, with --cluster; as many as are stepped together unless given."""
    certify: Literal["float", "interval", "float32"] | None = None
    """Judge each seed that answers all validation problems on all 10^20 pairs, first in floats and then in this
    arithmetic (float32 if none is named); a seed ends when it is certified, and that checkpoint is kept."""
    json: Json = None
    force: Force = False

    def run(self) -> int | None:
        try:
            return ended(self.go())
        except KeyboardInterrupt:
            print(f"\nInterrupted; saved in {self._out}. The same command goes on from there.", file=sys.stderr)
            return 130

    @property
    def _out(self) -> Path:
        return self.out or Path("runs") / self._model

    @property
    def _model(self) -> str:
        return registered_spec(self.name) if names_an_object(self.name) else self.name

    def go(self) -> bool:
        """Train, print how far each seed got, and return whether the run is complete."""
        from models.training import train

        use_threads(self.threads)
        use_data(self.data)
        out, judge = self._out, None
        if self.certify is not None:
            from interp.proofs.stored_certificates import certifier_for

            judge = certifier_for(self._model, self.certify)
        recipe = getattr(self, "recipe")  # noqa: B009 (a field of the subclass that train_class makes)
        if self.cluster is not None:
            result = self._on_cluster(out, recipe, judge)
        else:
            if self.parts_of is not None:
                raise UserError("--parts-of goes with --cluster; without it all seeds are one stack.")
            result = train(
                self._model, out, self.seeds, self.first_seed, recipe, self.device, self.compile, minutes=self.minutes,
                data_parallel=self.data_parallel, judge=judge,
            )  # fmt: skip
        said, lines = _told(result, judge is not None, out)
        print(*lines, said, sep="\n")
        if self.json is not None:
            from interp.core.replies import reply
            from interp.core.results import Provenance

            rests = Provenance(recipe.validation_size, None, "validation problems, for each seed")
            rows = [asdict(state) for state in result.seeds]
            data = {"folder": str(out), "complete": result.complete, "steps_done": result.steps_done}
            write_reply(self.json, reply("TrainResult", said, rows, data | {"seconds": result.seconds}, rests))
        return result.complete

    def _on_cluster(self, out: Path, recipe: Any, judge: Any) -> TrainResult:
        from models.training.cluster import connected
        from models.training.many_seeds import Run, train_on

        if self.data_parallel:
            raise UserError("--cluster spreads seeds and --data-parallel spreads batches; choose one of them.")
        run = Run(self._model, out, self.seeds, self.first_seed, recipe, judge=judge)
        with connected(self.cluster, self.device) as cluster:
            (result,) = train_on(cluster, [run], self.parts_of, self.compile, minutes=self.minutes)
        return result


def _told(result: TrainResult, judged: bool, out: Path) -> tuple[str, list[str]]:
    """What a run came to in one sentence, and a line for each of the first ten of its seeds, the best first."""
    took = f"{result.steps_done:,} steps, {result.seconds:.0f} s, {out}"
    by_loss = [state for state in result.seeds if state.best_loss is not None]
    if by_loss:
        return took, [
            f"seed {state.seed}: {state.status}, validation loss {state.validation_loss:.4f}, "
            f"best {state.best_loss:.4f} at step {state.best_step}"
            for state in by_loss
        ]
    lines = []
    for state in sorted(result.seeds, key=lambda s: -s.best_exact)[:10]:
        status = "certified" if state.accepted is not None else state.status
        best = f"best exact match {state.best_exact:.4f} at step {state.best_step}"
        line = f"seed {state.seed}: {status}, {best if state.best_step >= 0 else 'not validated yet'}"
        if state.turned_down:
            line += f", {state.turned_down} times perfect on validation but not certified"
        lines.append(line)
    if judged:
        lines.append(f"{len(result.accepted)} of {len(result.seeds)} seeds are certified on all pairs")
    return f"{len(result.perfect)} of {len(result.seeds)} seeds answer every validation problem ({took})", lines


def train_class(arguments: list[str]) -> type:
    """``Train`` with the named model's recipe as further flags, whose defaults are the recipe's values."""
    from models.registry import names, recipe_of
    from models.training.named_recipes import get_recipe
    from models.training.recipes import Recipe

    registered = [*names(sweeps=True), *filter(names_an_object, arguments)]
    # The name may come after flags and their values; a first word that is not a name is taken for a misspelt one.
    name = next((a for a in arguments if a in registered), None)
    if name is None and arguments and not arguments[0].startswith("-"):
        name = arguments[0]
    recipe = Recipe()
    if name is not None:
        registered_name = registered_spec(name) if names_an_object(name) else name
        recipe, other = recipe_of(registered_name), _value_of("--recipe", arguments)
        recipe = get_recipe(other) if other else recipe
    annotation = Annotated[Recipe, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
    extended = make_dataclass("Train", [("recipe", annotation, field(default=recipe))], bases=(Train,), frozen=True)
    extended.__doc__ = Train.__doc__
    return extended


def _value_of(flag: str, arguments: list[str]) -> str:
    """The last value given for a flag, with or without an equals sign; empty if the flag is not given."""
    found = ""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found
