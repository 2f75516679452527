"""AddLM's headline numbers. Of its three sizes only the smallest was trained here."""

from __future__ import annotations

from functools import partial
from typing import Any

import models
import models.data
from interp.core.results import Provenance
from interp.papers.headlines.counts import Finder, parameters
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.printed import read_numbers
from interp.papers.headlines.rules import AtLeast, AtMost, Between, Digits, Near, Ours, counted
from interp.papers.headlines.store import NotStored, Store
from models.addlm import model_name

ABLATION, CLAIMS, INSIDE = (f"interp reproduce addlm:{what}" for what in ("ablation", "claims", "inside"))
SHOWN = "interp headlines --paper addlm"  # counted or compared whenever it is made
TABLE = "interp reproduce addlm:table"
FLOAT, OURS, L1, TERNARY = (model_name("0.8m", suffix) for suffix in ("-float", "", "-l1", "-ternary"))
WINDOWS = "characters of the validation part, 871 windows"
NOT_YET = "not trained yet: hours of one CPU thread a run"
AT_PAPER_SIZE = "interp reproduce addlm:table --size paper"
ONE_SIZE = "the ablation here is at the smallest size alone; at 4.8 million a run takes hours of one CPU thread"
SMALLER = "0.82 million parameters and 2,000 steps instead of 4.8 million and 2,500"
_line = partial(Headline, "addlm")
_count = partial(Headline, "addlm", kind="count")
_trained = partial(Headline, "addlm", kind="training")


def rows(store: Store, model: str, steps: int | None = None) -> list[dict[str, Any]]:
    """Stored finished runs of a model, or its runs that were measured at ``steps``."""
    found = [
        row
        for row in store.experiment("addlm-runs")["rows"]
        if row["model"] == model and (row["steps"][-1] == row["budget"] if steps is None else steps in row["steps"])
    ]
    if not found:
        raise NotStored(f"No finished run of {model} is stored.")
    return found


def loss_of(store: Store, model: str) -> float:
    """Mean over seeds of the best validation loss, nats a character."""
    best = [min(row["losses"]) for row in rows(store, model)]
    return sum(best) / len(best)


def loss(model: str) -> Finder:
    def found(store: Store) -> Ours:
        best = [min(row["losses"]) for row in rows(store, model)]
        shown = ", ".join(f"{value:.3f}" for value in best)
        source = f"seeds of {model}, the best loss of each on the validation part"
        return counted(len(best), source, model=model).with_value(loss_of(store, model), f"by seed {shown}")

    return found


def cost(model: str, reference: str = FLOAT) -> Finder:
    """Its loss less that of the float baseline, nats."""

    def found(store: Store) -> Ours:
        n = min(len(rows(store, model)), len(rows(store, reference)))
        value = loss_of(store, model) - loss_of(store, reference)
        return counted(n, f"seeds of {model} and of {reference}", model=model).with_value(value)

    return found


def gap(store: Store) -> Ours:
    """AddLM's loss over the float baseline's, less one."""
    found = cost(OURS)(store)
    return found.with_value(loss_of(store, OURS) / loss_of(store, FLOAT) - 1)


def own_gap(store: Store) -> Ours:
    """The same of the two losses that the paper prints."""
    stated = [read_numbers(printed)[0].value for printed in (PRINTED_ADDLM, PRINTED_FLOAT)]
    return counted(2, "the paper's own losses").with_value(stated[0] / stated[1] - 1)


def ternary_share(store: Store) -> Ours:
    """What ternary weights alone cost, of what everything costs."""
    everything = loss_of(store, OURS) - loss_of(store, FLOAT)
    found = cost(TERNARY)(store)
    gain = "with ternary weights, L1 attention is a gain" if found.value > everything else ""
    return found.with_value(found.value / everything, gain)


def products_left(store: Store) -> Ours:
    """Multiplications that AddLM still takes, as a share of its float twin's."""
    from interp.papers.addlm.multiplications import count_multiplications

    ours, twin = (count_multiplications(models.build(name)) for name in (OURS, FLOAT))
    largest = max(ours.products, key=lambda part: ours.products[part])
    source = Provenance(twin.total, None, f"multiplications of {FLOAT} for 128 characters", "exhaustive")
    return Ours(ours.total / twin.total, source, model=OURS, remark=f"{ours.total:,} are left, most of the {largest}")


def in_products(store: Store) -> Ours:
    """Share of the float model's multiplications in scores, projections and MLP."""
    from interp.papers.addlm.multiplications import count_multiplications

    counts = count_multiplications(models.build(FLOAT))
    parts = [counts.products[part] for part in ("projections (Q, K, V, O)", "scores", "MLP")]
    source = Provenance(counts.total, None, f"multiplications of {FLOAT} for 128 characters", "exhaustive")
    return Ours(sum(parts) / counts.total, source, model=FLOAT)


def smaller(packing: str) -> Finder:
    """How many times smaller the ternary matrices are than in float32; and the whole model."""

    def found(store: Store) -> Ours:
        table = store.experiment("addlm-inside")["packing"]
        row = next((row for row in table["rows"] if row[0] == packing), None)
        if row is None:
            raise NotStored(f"No packing {packing!r} is stored.")
        source = Provenance(int(row[2]), None, "bytes of the packed matrices", "exhaustive")
        remark = f"the whole model with its float parts {row[5]:.1f} times"
        return Ours(float(row[3]), source, model=OURS, remark=remark)

    return found


def max_plus(store: Store) -> Ours:
    """The last loss of the true tropical score less that of a table of letter pairs."""
    found = rows(store, model_name("0.8m", "-max-plus"), 500)[0]
    pairs = store.experiment("addlm-runs")["letter_pairs"]
    remark = f"{found['losses'][-1]:.3f} after {found['steps'][-1]:,} steps, letter pairs {pairs:.3f}"
    return counted(1, "seed").with_value(found["losses"][-1] - pairs, remark)


PRINTED_FLOAT, PRINTED_ADDLM = "1.88", "2.11"
SMALL_ROW = "| 0.82 M params | 1.88 | 2.11 | +13.0% |"

HEADLINES: tuple[Headline, ...] = (
    _count("Summary", "No real-number multiplication is left in the forward pass.",
          "No real-number multiplications anywhere in the forward pass",
          AtMost(0.0, "the share of the float model's multiplications that is left"), CLAIMS, products_left, "%",
          note="softmax, values, norms, scales and head multiply"),
    _count("Key result, table", "Parameters of the smallest model.", "0.82 M", Digits(), SHOWN, parameters(OURS),
          "parameters", SMALL_ROW),
    _trained("Key result, table", "Loss of the float baseline at 0.82 million.", PRINTED_FLOAT, Near(0.01), TABLE,
          loss(FLOAT), "nats", SMALL_ROW),
    _trained("Key result, table", "Loss of AddLM at 0.82 million.", PRINTED_ADDLM, Near(0.01), TABLE, loss(OURS),
          "nats",
          SMALL_ROW, note="scores unscaled, as the paper's formula has them"),
    _trained("Key result, table", "Loss of AddLM at 0.82 million, scores over the root of d_head.", "2.11", Near(0.01),
          ABLATION, loss(model_name("0.8m", "-scaled")), "nats", SMALL_ROW, note="the paper's formula has no scale"),
    _trained("Key result, table", "Gap between the two at 0.82 million.", "+13.0%", Digits(), TABLE, gap, "%",
          SMALL_ROW),
    _count("Key result, table", "Gap between the two losses that the paper prints.", "+13.0%", Digits(), SHOWN, own_gap,
          "%", SMALL_ROW),
    _count("Key result, table", "Parameters of the middle model.", "4.8 M", Digits(), SHOWN,
          parameters(model_name("5m")), "parameters", "| 4.8 M params | 1.56 | 1.63 | +4.4% |"),
    *(
        _trained("Key result, table", claim, printed, Near(0.01), AT_PAPER_SIZE, loss(model_name("5m", suffix)), "nats",
                 "| 4.8 M params | 1.56 | 1.63 | +4.4% |", why=NOT_YET)
        for claim, printed, suffix in (("Loss of the float baseline at 4.8 million.", "1.56", "-float"),
                                       ("Loss of AddLM at 4.8 million.", "1.63", ""))
    ),
    _count("Key result, table", "Parameters of the largest model.", "25 M", Digits(), SHOWN,
          parameters(model_name("25m")), "parameters", "| 25 M params | 1.68 | 1.60 | −4.3% ✓ |"),
    *(
        _trained("Key result, table", claim, printed, Near(0.01), AT_PAPER_SIZE, loss(model_name("25m", suffix)),
              "nats",
                 "| 25 M params | 1.68 | 1.60 | −4.3% ✓ |", why=NOT_YET, note="the paper's are losses of last steps")
        for claim, printed, suffix in (("Loss of the float baseline at 25 million.", "1.68", "-float"),
                                       ("Loss of AddLM at 25 million.", "1.60", ""))
    ),
    _trained("Key result, table", "AddLM beats the float transformer at 25 million.",
          "beats the matched float transformer", AtMost(0.0, "its cost in nats"), AT_PAPER_SIZE,
          cost(model_name("25m"), model_name("25m", "-float")), "nats", why=NOT_YET),
    _count("Why it matters", "Multiplications in scores, projections and MLP, of all.", "~99%", AtLeast(0.985), CLAIMS,
          in_products, "%", "spends ~99% of its compute on multiplications",
          note="of the small float model's multiplications; the rest is in the head, values and norms"),
    _count("Why it matters", "Times that matrices of 1.6 bits a weight are smaller.", "~16×", Digits(), INSIDE,
          smaller("trits"), "times", "~16× smaller weight storage"),
    _count("Why it matters", "Times that matrices of two bits a weight are smaller.", "~16×", Digits(), INSIDE,
          smaller("two-bit"), "times", "~16× smaller weight storage"),
    _trained("Why it matters", "Times that an operation is cheaper.", "~30× cheaper per operation",
          why="a claim about hardware that does not exist here"),
    _count("Architecture", "Keys that softmax is over.", "16", Digits(), SHOWN,
          lambda store: counted(models.build(OURS).config.attn_top_k or 0, f"keys of {OURS}"), "keys",
          "softmax over top-k (k = 16)"),
    _trained("Ablation, table", "Cost of tropical attention alone.", "+0.031", Near(), ABLATION, cost(L1), "nats",
          "| Tropical attention only | 1.626 | +0.031 |", SMALLER),
    _trained("Ablation, table", "Cost of ternary weights alone.", "+0.131", Near(), ABLATION, cost(TERNARY), "nats",
          "| Ternary weights only | 1.726 | +0.131 |", SMALLER),
    _trained("Ablation, table", "Cost of both.", "+0.181", Near(), ABLATION, cost(OURS), "nats",
          "| Full AddLM | 1.776 | +0.181 |", SMALLER),
    _trained("Ablation", "Scores without multiplication are essentially free.", "essentially free", AtMost(0.05),
          ABLATION,
          cost(L1), "nats", scale=SMALLER),
    _trained("Ablation", "Almost all of the cost is in ternary weights.", "Almost all of AddLM’s training-loss cost",
          Between(0.7, 1.0, "their share of the cost"), ABLATION, ternary_share, "%", scale=SMALLER,
          note="0.131 of 0.181 in the paper"),
    *(
        _trained("Ablation, table", f"Loss of {label} at 4.8 million, 2,500 steps.", printed, quote=quote, why=ONE_SIZE)
        for label, printed, quote in (
            ("the float baseline", "1.595", "| Float baseline | 1.595 |"),
            ("tropical attention alone", "1.626", "| Tropical attention only | 1.626 |"),
            ("ternary weights alone", "1.726", "| Ternary weights only | 1.726 |"),
            ("full AddLM", "1.776", "| Full AddLM | 1.776 |"),
        )
    ),
    _trained("Open questions", "Times that a ternary kernel will be faster.", "10–30×",
          quote="Predicted speedup: 10–30× on inference", why="no GPU kernel was written"),
    _trained("Open questions", "At T = 4,096, top-8 routing beats dense softmax.", "top-8 routing",
          quote="top-8 routing should drastically beat dense softmax",
          why="no such length was trained; interp reproduce addlm:claims counts what top-k leaves"),
    _trained("Open questions", "The true tropical product trains.", "does it train?",
             AtMost(-0.1, "its loss beyond that of a table of letter pairs"), ABLATION, max_plus, "nats",
             scale="500 of 2,000 steps, one seed"),
    _count("Tech stack", "Characters of the text.", "1.1 M", Digits(), "interp fetch-data",
          lambda store: counted(models.data.TINYSHAKESPEARE.characters, "characters of the text"), "characters",
          "(1.1 M chars, char-level)"),
)  # fmt: skip
