"""The headline numbers of "A 456-Parameter Transformer Solves 10-Digit Addition"."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from interp.core.results import Provenance
from interp.papers.headlines.counts import Finder, certified, grokked, parameters, parameters_of, setting
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.rules import AtLeast, Digits, Inside, Near, Ours, SameRate, counted, over_seeds, several
from interp.papers.headlines.store import NotStored, Store

MODEL = "adder-456"
LIST, TABLE_1, TABLE_4 = "interp list", "interp reproduce adder-456:table1", "interp reproduce adder-456:table4"
FIG_1, TABLE_3 = "interp reproduce adder-456:fig1", "interp reproduce adder-456:table3"
COLUMNS = ("adder-763", "adder-512", "adder-491", "adder-456")  # of Table 4
_line = partial(Headline, "adder-456")
_count = partial(Headline, "adder-456", kind="count")
_trained = partial(Headline, "adder-456", kind="training")


def components(name: str) -> list[int]:
    """Parameters of every component, in the order of Table 1; the last is the total."""
    from interp.papers.adder_456.studies import breakdown

    return breakdown(name).parameters.tolist()


def component(row: int) -> Finder:
    return lambda store: counted(components(MODEL)[row], f"parameters of {MODEL} by component")


def across(row: int) -> Finder:
    """One component of the four models of Table 4."""
    return lambda store: several(tuple(float(components(name)[row]) for name in COLUMNS), "models, counted")


def saved(a: str, b: str, *rows: int) -> Finder:
    """What some components of ``b`` have less than those of ``a``; all of them by default."""

    def found(store: Store) -> Ours:
        if not rows:
            return counted(parameters_of(a) - parameters_of(b), f"parameters of {a} less those of {b}")
        first, second = components(a), components(b)
        return counted(sum(first[row] - second[row] for row in rows), f"parameters of {a} less those of {b}")

    return found


def errors(name: str) -> Finder:
    """Wrong answers on the ten test sets."""

    def found(store: Store) -> Ours:
        score = store.score(name)
        assert score.counts is not None
        wrong, n = score.counts[1] - score.counts[0], score.counts[1]
        return Ours(wrong / n, score.provenance, 1 - score.ends[1], 1 - score.ends[0], counts=(wrong, n), model=name)

    return found


def first_steps(store: Store, name: str) -> list[int]:
    """The first perfect uniform validation of each seed that has one, earliest first."""
    from interp.probes.grokking import GrokkingComparison, curve_of_entry

    curve = curve_of_entry(store.folder(name))
    comparison = GrokkingComparison({name: curve}, Provenance(curve.size, 0, "validations"))
    steps = sorted(comparison.first_steps(name).values())
    if not steps:
        raise NotStored(f"No stored seed of {name} was ever perfect.")
    return steps


def _over(steps: list[int], what: str) -> Ours:
    found = over_seeds([float(step) for step in steps], what, lowest=0.0)
    return replace(found, remark=f"seeds at {', '.join(f'{step:,}' for step in steps)}")


def first_perfect(name: str) -> Finder:
    """The step at which seeds first answer every uniform validation problem."""
    return lambda store: _over(first_steps(store, name), f"seeds of {name} that grok")


def in_thousands(name: str) -> Finder:
    """The same of a model of which one seed groks."""

    def found(store: Store) -> Ours:
        steps = first_steps(store, name)
        return counted(len(steps), f"seeds of {name} that grok").with_value(steps[0] / 1000)

    return found


def onset(store: Store) -> Ours:
    """The step, of seeds that grok, of the first uniform validation with 1% right."""
    from interp.probes.grokking import curve_of_entry

    curve = curve_of_entry(store.folder(MODEL))
    rows = curve.values[(curve == 1.0).any("step").values]
    if not len(rows):
        raise NotStored(f"No stored seed of {MODEL} was ever perfect.")
    steps = sorted(int(curve.step.values[(row >= 0.01).argmax()]) for row in rows)
    return _over(steps, f"seeds of {MODEL} that grok: first validation with 1% right")


def order(store: Store) -> Ours:
    """How many steps later the first seed of the smaller model of two neighbours groks, at least."""
    first = [first_steps(store, name)[0] for name in ("adder-582", "adder-512", "adder-456")]
    remark = f"first seeds at {', '.join(f'{step:,}' for step in first)}"
    return counted(3, "models").with_value(min(first[1] - first[0], first[2] - first[1]), remark)


PARTS = (
    ("Token embedding (tied) 14×7 98", "98", "the token embedding"),
    (r"Position embedding $33 \times 3 + 3 \times 7$ 120", "120", "the position embedding"),
    ("RMSNorm (pre-attn) weight only 7", "7", "the norm before attention"),
    (r"B_{kv}: 3 \times 7$ 63", "63", "queries, keys and values"),
    (r"Attention output ($r=2$) $7 \times 2 + 2 \times 7$ 28", "28", "attention output"),
    ("RMSNorm (pre-FFN) weight only 7", "7", "the norm before the MLP"),
    (r"FFN up ($r=3$) $7 \times 3 + 3 \times 14$ 63", "63", "the MLP's first matrix"),
    (r"FFN down ($r=3$) $14 \times 3 + 3 \times 7$ 63", "63", "the MLP's second matrix"),
    ("Final RMSNorm weight only 7", "7", "the last norm"),
)
IN_TABLE_4 = (
    ("Token emb. (tied) 98 98 98 98", "98 98 98 98", "Token embedding"),
    ("Position emb. 231 120 120 120", "231 120 120 120", "Position embedding"),
    ("Norm (pre-attn) 14 (LN) 14 (LN) 7 (RMS) 7", "14 (LN) 14 (LN) 7 (RMS) 7", "Norm before attention"),
    ("QKV projection 147 84 84 63", "147 84 84 63", "Queries, keys and values"),
    ("Attention output 49 42 42 28", "49 42 42 28", "Attention output"),
    ("Norm (pre-FFN) 14 (LN) 14 (LN) 7 (RMS) 7", "14 (LN) 14 (LN) 7 (RMS) 7", "Norm before the MLP"),
    ("FFN up 98 63 63 63", "98 63 63 63", "The MLP's first matrix"),
    ("FFN down 98 63 63 63", "98 63 63 63", "The MLP's second matrix"),
    ("Final norm 14 (LN) 14 (LN) 7 (RMS) 7", "14 (LN) 14 (LN) 7 (RMS) 7", "Last norm"),
    ("Output head 0 0 0 0", "0 0 0 0", "Output head"),
    ("Total 763 512 491 456", "763 512 491 456", "Total"),
)

HEADLINES: tuple[Headline, ...] = (
    _count("1", "Parameters of the smallest model.", "456", Digits(), LIST, parameters(MODEL), "parameters",
          "reach **456 parameters**"),
    _line("1", "Errors of 456 parameters on 100,000 test problems.", "0", SameRate(100_000), TABLE_3, errors(MODEL),
          "errors", "456p (seed 43) 456 100% 0"),
    _line("1", "456 parameters add all pairs of ten-digit numbers.", "100%", AtLeast(), "interp certify adder-456",
          certified(MODEL), "%", "achieving **100%** exact-match accuracy",
          note="the paper's 100% is 100,000 sums; proved here on every pair, rounding included"),
    _count("1", "Parameters with low-rank factors alone.", "512", Digits(), LIST, parameters("adder-512"), "parameters",
          "to reduce the model to 512 parameters"),
    _count("1", "Parameters with RMSNorm without bias.", "491", Digits(), LIST, parameters("adder-491"), "parameters",
          "to reach 491 parameters"),
    _count("1", "Parameters that sharing A and tying keys to values saves.", "21", Digits(), TABLE_4,
          saved("adder-491", "adder-456", 3), "parameters", "(saves 21 parameters)"),
    _count("1", "Parameters that attention output of rank 2 saves.", "14", Digits(), TABLE_4,
          saved("adder-491", "adder-456", 4), "parameters", "(saves 14 parameters)"),
    *(
        _count("Table 1", f"Parameters of {what}, of 456.", printed, Digits(), TABLE_1, component(row), quote=quote)
        for row, (quote, printed, what) in enumerate(PARTS)
    ),
    _count("1.2", "Steps of training, 456 parameters.", "54,000", Digits(), "interp train adder-456 --seeds 32",
          setting(MODEL, "steps"), "steps", "total steps = 54,000"),
    _trained("1.3", "Seeds of 456 parameters that grok.", "2 out of 5", SameRate(), "interp train adder-456 --seeds 32",
          grokked(MODEL), "%", "2 out of 5 random seeds grokked"),
    _trained("1.3", "582 parameters grok reliably: share of seeds.", "groks reliably", AtLeast(0.5,
          "the share of seeds"),
          "interp train adder-582 --seeds 16", grokked("adder-582"), "%", "the default seed 42 groks reliably",
          note="the paper shows one seed"),
    _trained("1.3", "512 parameters grok reliably: share of seeds.", "groks reliably", AtLeast(0.5,
          "the share of seeds"),
          "interp train adder-512 --seeds 16", grokked("adder-512"), "%", "the default seed 42 groks reliably",
          note="the paper shows one seed"),
    _trained("1.3", "Step at which 456 parameters begin to grok, seed 43.", "26,500", Inside(), FIG_1, onset,
          "steps", r"Seed 43 began grokking at step $\sim 26,500$"),
    _trained("1.3", "Step at which 456 parameters begin to grok, seed 44.", "22,000", Inside(), FIG_1, onset,
          "steps", r"Seed 44 began grokking at step $\sim 22,000$"),
    _trained("1.3", "Step at which 456 parameters are first perfect, seed 43.", "34,000", Inside(), FIG_1,
          first_perfect(MODEL), "steps", "first reached 100% at step 34,000"),
    _trained("1.3", "Step at which 456 parameters are first perfect, seed 44.", "37,000", Inside(), FIG_1,
          first_perfect(MODEL), "steps", "first reached 100% at step 37,000"),
    _trained("2.1", "Step at which 512 parameters grok.", "21", Near(0.1), FIG_1, in_thousands("adder-512"),
          "thousand steps", r"grokking at step $\sim 21\text{K}$"),
    _trained("Figure 1", "Smaller models grok later.", "later for smaller models",
          AtLeast(1, "the least delay from one model to the next smaller, in steps,"), FIG_1, order, "steps",
          "Grokking occurs later for smaller models"),
    _line("Table 2", "Errors of 582 parameters in 100,000.", "1", SameRate(100_000), TABLE_3, errors("adder-582"),
          "errors", "582p (seed 42) 582 99.999% 1"),
    _line("Table 2", "Errors of 512 parameters in 100,000.", "12", SameRate(100_000), TABLE_3, errors("adder-512"),
          "errors", "512p (seed 42) 512 99.988% 12"),
    _line("Table 2", "Errors of 456 parameters in 100,000, seed 43.", "0", SameRate(100_000), TABLE_3, errors(MODEL),
          "errors", "456p (seed 43) 456 100% 0"),
    _line("Table 2", "Errors of 456 parameters in 100,000, seed 44.", "42", SameRate(100_000), TABLE_3, errors(MODEL),
          "errors", "456p (seed 44) 456 99.958% 42"),
    _count("2", "Parameters of the full-rank baseline.", "763", Digits(), LIST, parameters("adder-763"), "parameters",
          "giving a 763-parameter full-rank baseline"),
    _line("2", "Accuracy of gpt-acc-jax, the model of 777 parameters that it began with.", "99.69%",
          quote="that achieves 99.69% accuracy on 10-digit addition", why="another project's model"),
    _count("2.1", "Parameters that low-rank positions save.", "111", Digits(), TABLE_4,
          saved("adder-763", "adder-512", 1), "parameters", r"$231 \rightarrow 120$, saves 111"),
    _count("2.1", "Parameters that low-rank queries, keys and values save.", "63", Digits(), TABLE_4,
          saved("adder-763", "adder-512", 3), "parameters", r"$147 \rightarrow 84$, saves 63"),
    _count("2.1", "Parameters that low-rank attention output saves.", "7", Digits(), TABLE_4,
          saved("adder-763", "adder-512", 4), "parameters", r"$49 \rightarrow 42$, saves 7"),
    _count("2.1", "Parameters that a low-rank MLP saves.", "70", Digits(), TABLE_4,
          saved("adder-763", "adder-512", 6, 7), "parameters", r"$196 \rightarrow 126$, saves 70"),
    _count("2.1", "Parameters that all four low-rank factors save.", "251", Digits(), TABLE_4,
          saved("adder-763", "adder-512"), "parameters", "Total savings: 251 parameters"),
    *(
        _count("Table 4", f"{what}: parameters of 763, 512, 491 and 456.", printed, Digits(), TABLE_4, across(row),
              quote=quote)
        for row, (quote, printed, what) in enumerate(IN_TABLE_4)
    ),
    _count("2.2", "Biases that RMSNorm saves.", "21", Digits(), TABLE_4, saved("adder-512", "adder-491"), "parameters",
          "= 21$ bias parameters"),
    _count("2.3", "Parameters that the last two changes save.", "35", Digits(), TABLE_4, saved("adder-491",
          "adder-456"),
          "parameters", "Combined savings: $21 + 14 = 35$"),
    _trained("2.3", "Queries, keys, values or the MLP at rank 2 do not train.", "leads to training failure",
          quote="leads to training failure", why="no such model was trained"),
)  # fmt: skip
