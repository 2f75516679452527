"""AddLM's headline numbers. Of its three sizes only the smallest was trained here."""

from __future__ import annotations

from functools import partial
from typing import Any

import models
import models.data
from interp.headlines.counts import Finder, parameters
from interp.headlines.headline import Headline
from interp.headlines.rules import AtLeast, AtMost, Digits, Near, Ours, counted
from interp.headlines.store import NotStored, Store
from interp.results import Provenance
from models.addlm import TOP_K, model_name

ABLATION, CLAIMS, INSIDE = (f"interp reproduce addlm:{what}" for what in ("ablation", "claims", "inside"))
TABLE, TOP = "interp reproduce addlm:table", "interp reproduce addlm:top-k"
FLOAT, OURS, L1, TERNARY = (model_name("0.8m", suffix) for suffix in ("-float", "", "-l1", "-ternary"))
WINDOWS = "characters of the validation part, 871 windows"
GPU = "a run of this size takes days on a CPU"
ON_GPU = "interp reproduce addlm:table --size paper"
ONE_SIZE = "the ablation here is at the smallest size alone; 4.8 million parameters want a GPU"
SMALLER = "0.82 million parameters and 2,000 steps instead of 4.8 million and 2,500"
_line = partial(Headline, "addlm")


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
    stated = {line.claim: line.stated[0].value for line in HEADLINES if line.where.startswith("Key result")}
    return counted(2, "the paper's own losses").with_value(stated[LOSS_ADDLM] / stated[LOSS_FLOAT] - 1)


def ternary_share(store: Store) -> Ours:
    """What ternary weights alone cost, of what everything costs."""
    everything = loss_of(store, OURS) - loss_of(store, FLOAT)
    found = cost(TERNARY)(store)
    gain = "with ternary weights, L1 attention is a gain" if found.value > everything else ""
    return found.with_value(found.value / everything, gain)


def products_left(store: Store) -> Ours:
    """Multiplications that AddLM still takes, as a share of its float twin's."""
    from interp.addlm.multiplications import count_multiplications

    ours, twin = (count_multiplications(models.build(name)) for name in (OURS, FLOAT))
    largest = max(ours.products, key=lambda part: ours.products[part])
    source = Provenance(twin.total, None, f"multiplications of {FLOAT} for 128 characters", "exhaustive")
    return Ours(ours.total / twin.total, source, model=OURS, remark=f"{ours.total:,} are left, most of the {largest}")


def in_products(store: Store) -> Ours:
    """Share of the float model's multiplications in scores, projections and MLP."""
    from interp.addlm.multiplications import count_multiplications

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
    """The loss of the true tropical score less that of -L1, at the last step that both were measured, lowest seeds."""
    other = rows(store, model_name("0.8m", "-max-plus"), 500)[0]
    step = other["steps"][-1]
    ours = rows(store, OURS, step)[0]
    value = other["losses"][-1] - ours["losses"][ours["steps"].index(step)]
    return counted(1, f"seed of each, after {step:,} steps").with_value(value)


def fewer_keys(k: int) -> Finder:
    """The loss of a model trained with the best ``k`` keys less that of one trained with all."""

    def found(store: Store) -> Ours:
        name = OURS if k == TOP_K else model_name("0.8m", f"-top-{k}")
        reference = model_name("0.8m", "-top-all")
        first, second = rows(store, name)[0], rows(store, reference)[0]
        value = min(first["losses"]) - min(second["losses"])
        return counted(1, f"seed of each: {k} keys and all", model=name).with_value(value)

    return found


LOSS_FLOAT, LOSS_ADDLM = "The float baseline of 0.82 million comes to this loss.", "AddLM comes to this one."
SMALL_ROW = "| 0.82 M params | 1.88 | 2.11 | +13.0% |"

HEADLINES: tuple[Headline, ...] = (
    _line("Summary", "No real-number multiplication is left in the forward pass.",
          "No real-number multiplications anywhere in the forward pass",
          AtMost(0.0, "the share of the float model's multiplications that is left"), CLAIMS, products_left, "%",
          note="softmax, values, norms, scales and head multiply"),
    _line("Key result, table", "The smallest model has so many parameters.", "0.82 M", Digits(), "interp list --all",
          parameters(OURS), "parameters", SMALL_ROW),
    _line("Key result, table", LOSS_FLOAT, "1.88", Near(0.01), TABLE, loss(FLOAT), "nats", SMALL_ROW),
    _line("Key result, table", LOSS_ADDLM, "2.11", Near(0.01), TABLE, loss(OURS), "nats", SMALL_ROW,
          note="scores unscaled, as the paper's formula has them"),
    _line("Key result, table", "Or with scores over the root of d_head.", "2.11", Near(0.01), ABLATION,
          loss(model_name("0.8m", "-scaled")), "nats", SMALL_ROW, note="the paper's formula has no scale"),
    _line("Key result, table", "The gap is so wide.", "+13.0%", Digits(), TABLE, gap, "%", SMALL_ROW),
    _line("Key result, table", "Which is the gap between the two printed losses.", "+13.0%", Digits(),
          "interp headlines --paper addlm", own_gap, "%", SMALL_ROW),
    _line("Key result, table", "The middle model has so many parameters.", "4.8 M", Digits(), "interp list --all",
          parameters(model_name("5m")), "parameters", "| 4.8 M params | 1.56 | 1.63 | +4.4% |"),
    *(
        _line("Key result, table", claim, printed, Near(0.01), ON_GPU, loss(model_name("5m", suffix)), "nats",
              "| 4.8 M params | 1.56 | 1.63 | +4.4% |", why=GPU)
        for claim, printed, suffix in (("Its float baseline comes to this loss.", "1.56", "-float"),
                                       ("Its AddLM to this one.", "1.63", ""))
    ),
    _line("Key result, table", "The largest model has so many parameters.", "25 M", Digits(), "interp list --all",
          parameters(model_name("25m")), "parameters", "| 25 M params | 1.68 | 1.60 | −4.3% ✓ |"),
    *(
        _line("Key result, table", claim, printed, Near(0.01), ON_GPU, loss(model_name("25m", suffix)), "nats",
              "| 25 M params | 1.68 | 1.60 | −4.3% ✓ |", why=GPU, note="the paper's are losses of last steps")
        for claim, printed, suffix in (("Its float baseline comes to this loss.", "1.68", "-float"),
                                       ("Its AddLM to this one.", "1.60", ""))
    ),
    _line("Key result, table", "There AddLM beats the float transformer.", "beats the matched float transformer",
          AtMost(0.0, "its cost in nats"), ON_GPU, cost(model_name("25m"), model_name("25m", "-float")), "nats",
          why=GPU),
    _line("Why it matters", "A transformer spends so much of its compute on these multiplications.", "~99%",
          AtLeast(0.985), CLAIMS, in_products, "%", "spends ~99% of its compute on multiplications",
          note="of the small float model's multiplications; the rest is in the head, values and norms"),
    _line("Why it matters", "Weights of 1.6 bits are so many times smaller.", "~16×", Digits(), INSIDE,
          smaller("trits"), "times", "~16× smaller weight storage"),
    _line("Why it matters", "And of two bits.", "~16×", Digits(), INSIDE, smaller("two-bit"), "times",
          "~16× smaller weight storage"),
    _line("Why it matters", "An operation is so many times cheaper.", "~30× cheaper per operation",
          why="a claim about hardware that does not exist here"),
    _line("Architecture", "Softmax is over so many keys.", "16", Digits(), "interp list --all",
          lambda store: counted(models.build(OURS).config.attn_top_k or 0, f"keys of {OURS}"), "keys",
          "softmax over top-k (k = 16)"),
    _line("Architecture", "The best 16 keys lose nothing.", "softmax over top-k (k = 16)",
          AtMost(0.02, "the loss beyond that with all keys"), TOP, fewer_keys(16), "nats"),
    _line("Ablation, table", "Tropical attention alone costs so much.", "+0.031", Near(), ABLATION, cost(L1),
          "nats", "| Tropical attention only | 1.626 | +0.031 |", SMALLER),
    _line("Ablation, table", "Ternary weights alone cost so much.", "+0.131", Near(), ABLATION, cost(TERNARY),
          "nats", "| Ternary weights only | 1.726 | +0.131 |", SMALLER),
    _line("Ablation, table", "Both cost so much.", "+0.181", Near(), ABLATION, cost(OURS), "nats",
          "| Full AddLM | 1.776 | +0.181 |", SMALLER),
    _line("Ablation", "Scores without multiplication are essentially free.", "essentially free", AtMost(0.05),
          ABLATION, cost(L1), "nats", scale=SMALLER),
    _line("Ablation", "Almost all of the cost is in ternary weights.", "Almost all of AddLM’s training-loss cost",
          AtLeast(0.7, "their share of the cost"), ABLATION, ternary_share, "%", scale=SMALLER,
          note="0.131 of 0.181 in the paper"),
    *(
        _line("Ablation, table", f"{label} comes to this loss at 4.8 million.", printed, quote=quote, why=ONE_SIZE)
        for label, printed, quote in (
            ("The float baseline", "1.595", "| Float baseline | 1.595 |"),
            ("Tropical attention alone", "1.626", "| Tropical attention only | 1.626 |"),
            ("Ternary weights alone", "1.726", "| Ternary weights only | 1.726 |"),
            ("Full AddLM", "1.776", "| Full AddLM | 1.776 |"),
        )
    ),
    _line("Open questions", "A ternary kernel will be so many times faster.", "10–30×",
          quote="Predicted speedup: 10–30× on inference", why="no GPU kernel was written"),
    _line("Open questions", "At T = 4,096, top-8 routing beats dense softmax.", "top-8 routing",
          quote="top-8 routing should drastically beat dense softmax",
          why="no such length was trained; interp reproduce addlm:claims counts what top-k leaves"),
    _line("Open questions", "The true tropical product trains.", "does it train?",
          AtMost(0.5, "the loss beyond that of -L1"), ABLATION, max_plus, "nats",
          scale="500 of 2,000 steps, one seed"),
    _line("Tech stack", "The text has so many characters.", "1.1 M", Digits(), "interp fetch-data",
          lambda store: counted(models.data.TINYSHAKESPEARE.characters, "characters of the text"), "characters",
          "(1.1 M chars, char-level)"),
)  # fmt: skip
