"""The command ``interp list``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interp.cli.shared_options import Json
from interp.cli.written_files import write_reply
from interp.core.stored_data import DATA, keep, kept
from models.files import CONFIG, ZOO, is_left_out

FILE = DATA / "models.json"  # `python -m interp.cli.list_models` writes it
LEFT_OUT = "*"  # marks a model that an installed package does not have
NOT_TRAINED, CONSTRUCTED = "not trained yet", "constructed"


def list_models(all: bool = False, markdown: bool = False, csv: bool = False, json: Json = None) -> None:
    """List the models that can be loaded, paper by paper, with their scores.

    Args:
        all: Also models that are registered and not trained, and those that only figures compare.
        markdown: Print the page docs/zoo.md: the table with all columns, and what they mean.
        csv: Print all columns as CSV.
    """
    rows = [row for row in rows_now() if not row.pop("figures only") or all]
    if not markdown:
        rows = [row | {"installed": not is_left_out(row["model"])} for row in rows]
    papers = list(dict.fromkeys(row["paper"] for row in rows))
    rows.sort(key=lambda row: (papers.index(row["paper"]), -row["parameters"], row["model"]))
    if not all and not markdown:
        rows = [row for row in rows if row["right (sampled)"] != NOT_TRAINED]
    if json is not None:
        from interp.core.replies import reply
        from models.number_format import counted

        write_reply(json, reply("models", f"{counted(len(rows), 'model')}.", rows))
    if csv:
        import pandas as pd

        print(pd.DataFrame(rows).to_csv(index=False), end="")
    elif markdown:
        from interp.cli.zoo_page import zoo_page

        print(zoo_page(rows), end="")
    else:
        _print(rows)
        if any(not row["installed"] for row in rows):
            print(f"\n{LEFT_OUT} Its weights are in a checkout of the project, not in this package.")
        if not all:
            print("\n`interp list --all` also names the models that are registered and not trained.")


def rows_now() -> list[dict[str, Any]]:
    """The rows of the table, as they are stored or, where something that they are made of has changed, made again."""
    return kept(FILE, sources(), table)["rows"]


def sources() -> list[Path]:
    """What the table is made of: the entries' data, the verdicts on constructed models, and the modules that register
    models."""
    called = re.compile(r"\bregister\w*\(")
    modules = (ZOO.parent / "families").rglob("*.py")
    registering = [path for path in modules if called.search(path.read_text(encoding="utf-8"))]
    return [*ZOO.glob(f"*/{CONFIG}"), DATA / "constructed_verdicts.json", *registering]


def table() -> dict[str, Any]:
    """One row per registered model, stored or not."""
    return {"rows": list(_rows())}


def _rows() -> Iterator[dict[str, Any]]:
    """One row per model, from the zoo, its score and its certificate. "figures only" marks those that only figures
    compare and that are not stored."""
    import models
    from interp.proofs.stored_verdicts import on_all_inputs
    from models.registry import BY_HAND, PUBLISHED, by_paper, get_spec, numbers_of

    stored = models.zoo_names()
    for name in by_paper(models.names(sweeps=True)):
        spec = get_spec(name)
        free, fixed = numbers_of(name)
        row = {
            "paper": spec.paper or "others",
            "model": name,
            "parameters": free,
            "constants": "" if fixed is None else len(fixed),
            "bits": 32 * free,
            "right (sampled)": CONSTRUCTED if spec.made == BY_HAND else NOT_TRAINED,
            "of": "",
            "all inputs": on_all_inputs(name),
            "runs of seeds": "",
            "perfect seeds": "",
            "training time": "",
            "figures only": spec.sweep and name not in stored,
        }
        if name in stored:
            entry = models.zoo.read_entry(name)
            made, score = entry["training"], entry["score"]
            by_loss = "loss" in score
            row |= {
                "bits": models.zoo.stored_bits(name),
                "right (sampled)": f"loss {score['loss']:.3f}" if by_loss else f"{score['correct']:,} / {score['n']:,}",
                "of": score["problems"],
            }
            if spec.made == PUBLISHED:
                row["training time"] = PUBLISHED
            else:
                row |= {
                    "runs of seeds": made["seeds_tried"],
                    "perfect seeds": "" if by_loss else models.zoo.grokked_seeds(made),
                    "training time": f"{made['seconds'] / 60:.0f} min",
                }
        yield row


def _print(rows: list[dict[str, Any]]) -> None:
    """Print a block per paper, with perfect seeds if there is room; a name too long for its row gets its own line."""
    width = shutil.get_terminal_size().columns
    for paper in dict.fromkeys(row["paper"] for row in rows):
        of = [_shown(row) for row in rows if row["paper"] == paper]
        columns = {name: max(map(len, (name, *(row[name] for row in of)))) for name in of[0]}
        if sum(columns.values()) + len(columns) - 1 > width or not any(row["perfect seeds"] for row in of):
            del columns["perfect seeds"]
        room = width - (sum(columns.values()) - columns["model"] + len(columns) - 1)
        columns["model"] = max((len(row["model"]) for row in of if len(row["model"]) <= room), default=0)
        print(f"\n{paper}")
        for row in ({name: name for name in columns}, *of):
            if len(row["model"]) > columns["model"]:
                print(row["model"])
                row = row | {"model": ""}
            cells = (row[name].rjust(n) if name == "numbers" else row[name].ljust(n) for name, n in columns.items())
            print(" ".join(cells).rstrip())


def _shown(row: dict[str, Any]) -> dict[str, str]:
    right, known = row["right (sampled)"], row["all inputs"]
    evidence = known.split(" ")[0].strip(",:")
    if not evidence or known.startswith("not judged"):
        evidence = "sampled" if row["of"] else ""
    if evidence == "exhaustive" and " of " in known:
        correct, _, n = known.removeprefix("exhaustive: ").split(" ")[:3]
        right = f"{correct}/{n}"
    return {
        "model": row["model"],
        "numbers": f"{row['parameters']:,}",
        "right": right.replace(" / ", "/"),
        "evidence": f"{evidence} {LEFT_OUT}" if not row["installed"] else evidence,
        "perfect seeds": row["perfect seeds"],
    }


if __name__ == "__main__":
    keep(FILE, sources(), table())
    print(f"wrote {FILE.name}")
