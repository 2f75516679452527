"""Stored training runs of AddLM: each size stands next to its own float baseline."""

from __future__ import annotations

from studies.addlm.runs import show_runs, stored_rows


def row(model: str, losses: list[float], steps: list[int], budget: int, seed: int = 0) -> dict[str, object]:
    return {"model": model, "seed": seed, "steps": steps, "losses": losses, "budget": budget, "stored": True}


def test_a_size_is_compared_with_its_own_baseline_and_the_ablation_at_its_own_steps():
    small, paper = [1000, 2000], [2500, 5000]
    rows = [
        row("addlm-0.8m-float", [2.0, 1.9], small, 2000),
        row("addlm-0.8m", [2.2, 2.1], small, 2000),
        row("addlm-5m-float", [1.6, 1.5], paper, 5000),
        row("addlm-5m", [1.8, 1.55], paper, 5000),
        row("addlm-5m-ternary", [1.7], paper[:1], 5000),
    ]
    of_small, of_paper, every = show_runs({"rows": rows})
    difference = {section.heading: section.tables[0].set_index("model").iloc[:, -1] for section in (of_small, of_paper)}
    assert difference[of_small.heading]["addlm-0.8m"] == "+0.200"
    assert difference[of_paper.heading]["addlm-5m"] == "+0.050"
    assert list(of_paper.tables[0]["model"]) == ["addlm-5m-float", "addlm-5m"]  # the ablation's run is not finished
    ablation = of_paper.tables[1].set_index("model")
    assert ablation["best (mean)"].to_dict() == {
        "addlm-5m-float": "1.600",
        "addlm-5m": "1.800",
        "addlm-5m-ternary": "1.700",
    }
    assert len(every.tables[0]) == len(rows)


def test_the_page_of_the_stored_runs_has_every_run():
    *_, every = show_runs({"rows": stored_rows()})
    assert len(every.tables[0]) == len(stored_rows()) > 0
