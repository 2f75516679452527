"""One form of JSON for every command: the finding, what it rests on and how strong it is, alone on the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
import torch

from interp.cli import main
from interp.cli.asked_probes import answers
from interp.core.replies import MOST_ROWS, reply
from interp.core.results import Provenance, Strength
from interp.proofs import check_certificate, load_certificate
from models.tasks import formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from models.zoo import load

KEYS = {"schema_version", "made_by", "version", "command", "warnings", "result", "provenance", "strength_of_evidence"}
TRAINED = ("--steps", "4", "--batch-size", "16", "--eval-every", "2", "--validation-size", "16", "--device", "cpu")
#: A line of every command with ``--json``, its exit status, and the strength of its evidence.
LINES = [
    (["list"], 0, None),
    (["ask", "microadder-57"], 0, None),
    (["ask", "microadder-57", "attention_by_role", "--problems", "32"], 0, "sampled"),
    (["solve", "microadder-57", "57+48"], 0, "sampled"),
    (["score", "microadder-57"], 0, "sampled"),
    (["certify", "parity-coupling-1l4h-small", "--shape", "4", "--arithmetic", "float"], 0, "exhaustive"),
    (["attack", "toygpt-learned-pre", "--runs", "1000"], 1, "sampled"),
    (["compare", "microadder-57", "microadder-57-by-hand", "--problems", "32"], 0, "sampled"),
    (["train", "microadder-57", *TRAINED, "--compile", "False"], 0, "sampled"),
]


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = main([*arguments, "--json", "-"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("line", "status", "strength"), LINES, ids=lambda each: "-".join(each[:3:2]) if isinstance(each, list) else ""
)
def test_a_commands_json_stands_alone_on_the_output_in_the_one_form(
    line: list[str], status: int, strength: str | None, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found_status, value = told(line, capsys)
    assert (
        found_status == status
        and set(value) == KEYS
        and (value["schema_version"], value["made_by"]) == (1, "carrylens")
    )
    assert value["command"].startswith(f"interp {line[0]}") and value["strength_of_evidence"] == strength
    assert value["result"]["sentence"] and len(value["result"]["rows"]) == min(
        value["result"]["rows_in_all"], MOST_ROWS
    )
    if strength is None:
        assert value["provenance"] is None
    else:
        assert strength in get_args(Strength) and value["provenance"]["n"] >= 1 and value["provenance"]["source"]


def test_what_a_reply_says_is_what_the_answers_are(capsys) -> None:
    _, value = told(["solve", "microadder-57", "57+48", "9999999999+1"], capsys)
    rows = value["result"]["rows"]
    assert [(row["answer"], row["expected"], row["right"]) for row in rows] == [
        (105, 105, True),
        (10**10, 10**10, True),
    ]
    assert value["provenance"] == {"n": 2, "seed": None, "source": "problems that were given"}


def test_a_refusal_leaves_the_output_empty_and_what_follows_prints_as_ever(capsys) -> None:
    assert main(["solve", "microadder-57", "57+x", "--json", "-"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("interp: ") and len(said.err.splitlines()) == 1
    assert main(["solve", "microadder-57", "57+48"]) == 0 and capsys.readouterr().out == "57+48 = 105\n"


def test_a_certificate_in_a_reply_is_read_and_checked(capsys, tmp_path: Path) -> None:
    path, name = tmp_path / "certificate.json.gz", "parity-coupling-1l4h-small"
    line = ["certify", name, "--shape", "4", "--arithmetic", "float"]
    assert main([*line, "--json", str(path)]) == 0 and f"wrote {path}" in capsys.readouterr().out
    assert main([*line, "--json", str(path)]) == 0  # its own file is replaced
    found = load_certificate(path)
    assert check_certificate(found, load(name)).status == "certified"


def test_rows_are_cut_and_counted_and_hold_no_number_that_json_has_not() -> None:
    table = pd.DataFrame({"x": [float("nan"), float("inf"), 1.5]})
    found = reply("table", "said", table, provenance=Provenance(10**20, None, "pairs", "exhaustive"), most=2)
    assert found.result.rows == [{"x": None}, {"x": None}] and found.result.rows_in_all == 3
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["provenance"]["n"] == 10**20


def test_a_negative_number_is_an_answer_and_what_spells_none_is_not():
    task = formatted("{a}-{b}={s:+1}", "a - b", vocabulary=[*"0123456789+-=", "?"])
    config = TransformerConfig(
        n_layers=1, d_model=task.input_length, n_heads=1, d_head=1, d_mlp=0, d_vocab=14, n_ctx=task.input_length,
        act_fn="relu", normalization_type=None,
    )  # fmt: skip
    for said, answer in (("-2", -2), ("+2", 2), ("?2", None), ("-0", None)):
        weights = DenseWeights(config)
        with torch.no_grad():
            for parameter in weights.parameters():
                parameter.zero_()
            weights.own()["pos_embed.W_pos"].copy_(torch.eye(task.input_length))
            for query, token in zip(task.query_positions, said, strict=True):
                weights.own()["unembed.W_U"][query, task.parsed.ids[token]] = 1.0
        (row,) = answers(ArithmeticTransformer(weights, task), ["3-5"]).result.rows
        assert (row["answer"], row["expected"], row["right"]) == (answer, -2, said == "-2")
        assert row["answer_text"] == (said if answer is None else str(answer))
