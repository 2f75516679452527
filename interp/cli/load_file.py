"""The command that opens a file: what it is, and, without a task, what its task may be."""

from __future__ import annotations

import shlex

from interp.cli.own_flags import given_config, given_task, load_model, said
from interp.cli.shared_options import Json, Model, one_thread
from interp.cli.written_files import write_reply


def load(model: Model, seconds: float | None = None, json: Json = None) -> None:
    """Say what a file is, and guess the task of one that does not say it, by trying formats on the model.

    Args:
        seconds: A limit of time for the search; by default it is limited by its work, the same on every machine.
    """
    import models
    from interp.cli.asked_probes import guessed
    from interp.core.replies import reply
    from models.importers import says_its_task
    from models.transformer import model_name

    if given_task() is not None or says_its_task(model):
        loaded = load_model(model)
        sentence = loaded.load_report or f"{model_name(loaded)}: {loaded.task!r}."
        print(sentence, f"Next: interp score {shlex.quote(model)}{said()}", sep="\n")
        write_reply(json, reply("Loaded", sentence, (), {"task": loaded.task.name}))
        return
    one_thread()
    found = models.guess(model, given_config(), seconds=seconds)
    print(found)
    config = {**(given_config() or {}), **found.config}
    flags = f"--task {shlex.quote(found.proposals[0].text)}"
    if config:
        flags += " --config " + shlex.quote(",".join(f"{name}={value}" for name, value in config.items()))
    print(f"Next: interp score {shlex.quote(model)} {flags}")
    write_reply(json, guessed(found))
