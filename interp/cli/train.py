"""The commands that make models: train, publish, and fetch-data for what text models are trained on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from interp.cli.own_flags import registered_spec
from interp.cli.shared_options import (
    FOLDER,
    Bare,
    ClusterAddress,
    Json,
    Parts,
    RunFolders,
    ended,
    one_thread,
    use_data,
    use_threads,
)
from interp.cli.written_files import write_reply
from models.errors import UserError
from models.files import names_an_object
from models.number_format import counted

if TYPE_CHECKING:
    from interp.core.replies import Reply
    from models.training import Recipe, TrainResult


def _registered() -> list[str]:
    from models.registry import names

    return names(sweeps=True)


def recipe_of_words(words: list[str]) -> Recipe:
    """The recipe of the model that a line of ``interp train`` names, or the one that it names itself with --recipe."""
    from models.registry import recipe_of
    from models.training import Recipe, get_recipe

    registered = [*_registered(), *filter(names_an_object, words)]
    # The name may come after flags and their values; a first word that is not a name is taken for a misspelt one.
    name = next((word for word in words if word in registered), None)
    if name is None and words and not words[0].startswith("-"):
        name = words[0]
    if name is None:
        return Recipe()
    own = recipe_of(registered_spec(name) if names_an_object(name) else name)
    other = _value_of("--recipe", words)
    return get_recipe(other) if other else own


def _value_of(flag: str, arguments: list[str]) -> str:
    """The last value given for a flag, with or without an equals sign; empty if the flag is not given."""
    found = ""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found


def train(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    recipe_name: Annotated[str, tyro.conf.arg(name="recipe", metavar="NAME")] = "",
    seeds: int = 1,
    first_seed: int = 0,
    out: Path | None = None,
    device: str = "auto",
    compile: bool | None = None,
    threads: int = 1,
    minutes: float | None = None,
    data: Path | None = None,
    data_parallel: bool = False,
    cluster: ClusterAddress = None,
    parts_of: int | None = None,
    certify: Annotated[Literal["float", "interval", "float32"] | None, Bare("float32", before=_registered)] = None,
    until: Annotated[str, tyro.conf.arg(metavar="JUDGE")] = "",
    json: Json = None,
    recipe: Annotated[Any, Parts(recipe_of_words)] = None,
) -> int | None:
    """Train a model, or resume the run in --out. With a model's name, --help lists every flag of its recipe.

    Args:
        name: A registered model, e.g. microadder-57, or a model spec in one's own file, as FILE.py:NAME.
        recipe_name: Start from this recipe in place of the model's own; the flags below change it.
        seeds: How many seeds to train, stacked.
        first_seed: The first of them.
        out: Run folder; runs/NAME by default.
        device: auto, cpu or cuda.
        compile: torch.compile the step; by default where a compiler is found and the run is long.
        threads: CPU threads; these models are too small for more.
        minutes: Stop and save after this many minutes; the same command resumes.
        data: A local copy of the text, for models of text.
        data_parallel: Split every batch over the processes that `accelerate launch -m interp.cli train ...` started.
        cluster: Train parts of the seeds as tasks of Ray, on as many machines as there are: auto, local or HOST:PORT.
        parts_of: Seeds in a part, with --cluster; as many as are stepped together unless given.
        certify: Judge each seed that answers all validation problems on all 10^20 pairs, first in floats and then in
            this arithmetic (float32 if none is named); a seed ends when it is certified, and that checkpoint is kept.
        until: certified, to judge such seeds on all problems of any task, for half a minute each time, and to train
            those that are not certified on what is wrong or not proved as well.
    """
    model = registered_spec(name) if names_an_object(name) else name
    folder = out or Path("runs") / model
    try:
        use_threads(threads)
        use_data(data)
        judge = None
        if certify is not None:
            from interp.proofs.training_judge import certifier_for

            judge = certifier_for(model, certify)
        if until:
            from models.training import judge_of

            if judge is not None:
                raise UserError("--certify and --until are two judges; choose one of them.")
            judge = judge_of(until, model)
        if cluster is not None:
            if data_parallel:
                raise UserError("--cluster spreads seeds and --data-parallel spreads batches; choose one of them.")
            from models.training import PlannedRun, connected, train_on

            run = PlannedRun(model, folder, seeds, first_seed, recipe, judge=judge)
            with connected(cluster, device) as on:
                (result,) = train_on(on, [run], parts_of, compile, minutes=minutes)
        else:
            if parts_of is not None:
                raise UserError("--parts-of goes with --cluster; without it all seeds are one stack.")
            from models.training import train as train_stacked

            result = train_stacked(
                model, folder, seeds, first_seed, recipe, device, compile, minutes=minutes,
                data_parallel=data_parallel, judge=judge,
            )  # fmt: skip
        said, lines = _told(result, judge is not None)
        print(*lines, said, f"{result.seconds:.0f} s, in {folder}", sep="\n")
        if json is not None:
            write_reply(json, _reply(result, said, folder, recipe))
        ended(result.complete)
    except KeyboardInterrupt:
        print(f"\nInterrupted; saved in {folder}. The same command goes on from there.", file=sys.stderr)
        return 130


def _reply(result: TrainResult, said: str, folder: Path, recipe: Recipe) -> Reply:
    from interp.core.replies import reply
    from interp.core.results import Provenance

    rests = Provenance(recipe.validation_size, None, "validation problems, for each seed")
    data = {"folder": str(folder), "complete": result.complete, "steps_done": result.steps_done}
    rows = [asdict(state) for state in result.seeds]
    return reply("TrainResult", said, rows, data | {"seconds": result.seconds}, rests)


def _told(result: TrainResult, judged: bool) -> tuple[str, list[str]]:
    """What a run came to in one sentence, and a line for each of the first ten of its seeds, the best first."""
    took = counted(result.steps_done, "step")
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
            line += f", {state.turned_down} times perfect on validation but not certified; last {state.last_verdict}"
        lines.append(line)
    if judged:
        lines.append(f"{len(result.accepted)} of {len(result.seeds)} seeds are certified on all problems")
    return f"{len(result.perfect)} of {len(result.seeds)} seeds answer every validation problem ({took})", lines


def publish(
    runs: RunFolders,
    out: Path | None = None,
    overwrite: bool = False,
    repeats: Annotated[tuple[Path, ...], FOLDER, tyro.conf.arg(help_behavior_hint="")] = (),
    certify: bool = False,
) -> None:
    """Make a zoo entry from one or more finished runs of a model.

    Args:
        runs: Run folders.
        out: The entry's folder; the package's zoo by default.
        overwrite: Replace an entry that is there.
        repeats: Runs of the same seeds on a build that rounds differently; they are counted separately.
        certify: Choose the first of the perfect seeds that is proved right on all pairs, float32 rounding included.
    """
    from interp.proofs import check_certificate
    from interp.proofs.stored_verdicts import stored_certificate
    from interp.proofs.training_judge import Prover
    from models.training.publish import publish
    from models.zoo import load

    one_thread()
    folder, result = publish(
        list(runs), out, overwrite, repeats, Prover("float32", None, gives_back=False) if certify else None
    )
    print(f"{folder}\n{result}")
    certificate = stored_certificate(folder)
    if certificate is not None:
        print(f"holds: {check_certificate(certificate, load(folder)).sentence()}")


def fetch_data(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = "tinyshakespeare",
    out: Path | None = None,
    data: Path | None = None,
) -> None:
    """Download the text that AddLM is trained on (1.1 MB), check its SHA-256, and keep it in the user's cache.

    Args:
        name: Which text.
        out: Where to put it; by default where training looks for it.
        data: Take a local copy instead of the download.
    """
    from models.errors import known_name
    from models.files import TINYSHAKESPEARE, VARIABLE, cache_path, fetch

    known_name("text", name, (TINYSHAKESPEARE.name,))
    corpus = TINYSHAKESPEARE
    path = fetch(corpus, out, data)
    print(f"{path}: {corpus.characters:,} characters, SHA-256 as it should be")
    if path != cache_path(corpus):
        print(f"To train on it, set {VARIABLE}={path} or give --data.")
