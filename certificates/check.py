#!/usr/bin/env python3
"""Check a proof that a trained transformer adds or subtracts every pair of ten-digit numbers rightly.

    python3 certificates/check.py certificates/microadder-57.json

This file needs Python 3.10 or later and nothing else. All numbers are integers that stand for multiples of 2^-160, and
every result is an interval that holds the true value. The theorem, for the weights in the file:

    For all a and b from 0 to 9999999999 the model, decoding greedily, writes the eleven digits of a + b, then its end
    token if the task has one. At each of these steps the right token's logit is more than the margin above every other.

Of a task that subtracts, the theorem is about a - b: its ten digits for all pairs with a >= b or, in ten's complement,
the ten digits of a - b modulo 10^10 and the borrow that is left, for all pairs.

"Logit" means what a processor computes in float32, in any order of summation, with every rounding error enclosed. The
assumptions about float32 are the constants below. README.md, next to this file, says what is trusted.

1. A *query* is a step and the token at its position. In a model of one layer the score and the value of every other
   position then depend on the token there alone: attention writes sum_j w_j c_j / sum_j w_j, with w_j and c_j from
   tables of intervals.
2. A *leaf* of a query is the digits x, y of one column (of up to three, where one is not enough) and the carry into it.
   Over its problems the ratio is at most L if the largest sum_j w_j (c_j - L) is at most 0. A dynamic programme over
   the other columns, with the carry as its state, finds that largest sum. What several heads write is a sum of ratios
   N_h / D_h, whose extremes belong to different problems. With a bound L_h of each, N_h - L_h D_h is at most 0, so that
   the sum is at most sum_h L_h plus the largest sum_h (N_h - L_h D_h) / max D_h, which the same programme finds.
3. This gives an interval for what attention writes on each leaf. First-order forms carry it through MLP and norms.
4. The right logit's lead must exceed the margin on the whole interval, which is halved where it does not. The pairs in
   all leaves of a step must add up to all pairs.
"""

# ruff: noqa: B905 -- lengths are checked where the file is read
import hashlib
import json
import math
import struct
import sys
from bisect import bisect_left
from functools import cache, cached_property
from operator import mul

BITS = 160  # an integer n stands for n / 2^160; every float32 is such a number
ONE = 1 << BITS
TINY = ONE >> 90  # more than underflow adds to a sum of a few hundred products
LARGEST = ONE << 60  # below this, neither magnitudes nor their squares overflow
LARGEST_WEIGHT = ONE << 12
# Assumptions about the processor and the mathematical library, relative and in units of u = 2^-24: IEEE addition and
# multiplication are correctly rounded (1); a square root and a quotient are off by one unit in the last place (2), exp
# by two (4), gelu(x) by 16 u |x|.
SQRT, QUOTIENT, EXP, GELU = 2, 2, 4, 16
ROOT_TWO_PI = 2506628274631000502415765284811045253006986740609938316629923  # 10^60 sqrt(2 pi), rounded down

DIGITS = 10
PLUS, EQUALS, ANSWER = 10, 21, 22  # positions: a at 0-9, "+", b at 11-20, "=", the sum from 22 on
# For each task: whether operands are written units first, the tokens of the operator and "=", those that end an answer,
# the sign of b, and whether the carry or borrow out of the last column is written. If it is not, there is none.
TASKS = {
    "ten-digit-addition": (True, 0, 0, [0], 1, True),
    "ten-digit-addition-unended": (True, 0, 0, [], 1, True),
    "padded-addition": (False, 10, 11, [13], 1, True),
    "ten-digit-subtraction": (True, 0, 0, [], -1, False),
    "padded-subtraction": (False, 10, 11, [13], -1, False),
    "complement-subtraction": (False, 10, 11, [13], -1, True),
}
SWITCHES = {
    "n_layers": 1, "act_fn": "gelu", "gated_mlp": False, "normalization_type": "RMS", "norm_placement": "pre",
    "norm_eps_outside": False, "final_norm": True, "positional_embedding_type": "standard", "n_position_levels": 1,
    "attn_scores": "dot", "attn_top_k": None, "dtype": "float32",
}  # fmt: skip
READ = {"task", "eps", "attn_scale", "d_model", "d_head", "d_mlp", "n_heads", "d_vocab", "n_ctx"}
# Keys that have no effect with these switches. A config with any other key is from a model that this checker rejects.
IDLE = {
    "n_position_ids", "rotary_base", "rotary_adjacent_pairs", "fire_c", "fire_L0", "fire_normaliser", "dropout",
}  # fmt: skip
LEVELS, HALVINGS, WIDEST = 64, 8, 3


class Rejected(Exception):
    """The file does not prove what it claims, or is not of a kind that this checker knows."""


def require(fact, why):
    if not fact:
        raise Rejected(why)


# ---- integers as numbers


def floor(n):
    """Round a product, which has 320 bits after the point, down to 160."""
    return n >> BITS


def ceil(n):
    return -(-n >> BITS)


def up(n, d):
    """n / d rounded up, d > 0."""
    return -(-n // d)


def fixed(text):
    """The number that a hexadecimal float stands for, exactly."""
    require(isinstance(text, str), "a weight is not written as a hexadecimal float")
    try:
        n, d = float.fromhex(text).as_integer_ratio()
    except (ValueError, OverflowError):
        raise Rejected(f"{text!r} is not a finite hexadecimal float") from None
    require(ONE % d == 0, f"{text} is too small")
    return n * (ONE // d)


def round32(n):
    """The float32 nearest to n, ties to even, as IEEE addition rounds."""
    shift = max(abs(n).bit_length() - 24, BITS - 149)
    q, rest = divmod(abs(n), 1 << shift)
    half = 1 << (shift - 1)
    q += rest > half or (rest == half and q % 2)
    return (q << shift) * (1 if n >= 0 else -1)


def exp(x):
    """Bounds below and above e^x: the series for |x| / 2^k < 2^-8, squared k times."""
    t = abs(x)
    k = max(0, t.bit_length() - BITS + 8)
    a, b = t >> k, up(t, 1 << k)
    low = high = term_low = term_high = ONE
    for n in range(1, 25):
        term_low, term_high = (term_low * a >> BITS) // n, up(up(term_high * b, ONE), n)
        low, high = low + term_low, high + term_high
    high += term_high  # the rest of the series is less than its last term
    for _ in range(k):
        low, high = low * low >> BITS, up(high * high, ONE)
    return (low, high) if x >= 0 else (ONE * ONE // high, up(ONE * ONE, low))


def density(x):
    """Bounds below and above the normal density phi(x)."""
    square = -(x * x // (2 * ONE))
    return exp(square - 1)[0] * 10**60 // (ROOT_TWO_PI + 1), up(exp(square)[1] * 10**60, ROOT_TWO_PI)


@cache
def gelu(x):
    """Bounds (below, above) of x Phi(x), and of its derivative Phi(x) + x phi(x)."""
    t = abs(x)
    if t >= 12 * ONE:  # t (1 - Phi(t)) < phi(t) and t phi(t) are below 2^-100 from 12 on
        far = ONE >> 100
        return ((x - far, x), (ONE - far, ONE + far)) if x > 0 else ((-far, 0), (-far, far))
    # Phi(t) = 1/2 + phi(t) (t + t^3 / 3 + t^5 / (3 5) + ...)
    low = high = term = more = t
    n, square = 1, t * t >> BITS
    while more > 1 or 2 * (square + 1) > n * ONE:
        n += 2
        term, more = (term * square >> BITS) // n, up(up(more * (square + 1), ONE), n)
        low, high = low + term, high + more
    high += 2 * more  # each later term is less than half of the one before it
    phi = density(t)
    low, high = ONE // 2 + (phi[0] * low >> BITS), ONE // 2 + up(phi[1] * high, ONE)
    low, high = (low, high) if x >= 0 else (ONE - high, ONE - low)
    values = [f(x * p) for p in (low, high) for f in (floor, ceil)]
    slopes = [f(x * p) for p in phi for f in (floor, ceil)]
    return (min(values), max(values)), (low + min(slopes), high + max(slopes))


@cache
def u(n):
    """n u / (1 - n u), rounded up: the relative error of n roundings in a row (Higham 2002, 3.1)."""
    return up(n * ONE, (1 << 24) - n)


# ---- forms: numbers c + sum_k a_k s_k + e with unknown s_k and e, |s_k| <= 1 and |e| within the error


class Form:
    """One number: its centre, its slopes along what attention writes, and its error."""

    def __init__(self, centre, slopes, error):
        self.c, self.a, self.e = centre, slopes, error
        self.reach = sum(map(abs, slopes)) + error

    @property
    def size(self):
        return abs(self.c) + self.reach

    def widened(self, error):
        return Form(self.c, self.a, self.e + error)

    def shifted(self, bits):
        """The form divided by 2^bits."""
        return Form(self.c >> bits, [a >> bits for a in self.a], (self.e >> bits) + len(self.a) + 2)

    def __add__(self, other):
        return Form(self.c + other.c, [p + q for p, q in zip(self.a, other.a)], self.e + other.e)

    def __mul__(self, other):
        apart = self.reach - self.e  # the slopes' part
        e = (abs(self.c) + apart) * other.e + self.e * other.size + apart * (other.reach - other.e)
        a = [self.c * q + other.c * p for p, q in zip(self.a, other.a)]
        return Form(self.c * other.c, a, e).shifted(BITS)


class Row:
    """A row of exact numbers, for sums of its products with forms."""

    def __init__(self, numbers):
        self.numbers = list(numbers)
        self.sizes = [abs(x) for x in self.numbers]

    def of(self, forms):
        """The sum of products with forms, not yet shifted."""
        slopes = [sum(map(mul, part, self.numbers)) for part in zip(*(f.a for f in forms))]
        centre = sum(f.c * x for f, x in zip(forms, self.numbers))
        return Form(centre, slopes, sum(f.e * x for f, x in zip(forms, self.sizes)))

    def most(self, sizes):
        return sum(map(mul, sizes, self.sizes))


def inverse_scale(forms, eps):
    """1 / sqrt(mean square + eps) of a vector, as computed: to first order around its centre, and its least and largest
    value. Returns None where it finds no bound."""
    n = 2 * len(forms) * ONE
    apart = sum(f.reach**2 for f in forms)  # the squares' second-order part is within [0, this]
    c = (2 * sum(f.c * f.c for f in forms) + apart) // n
    slopes = [4 * sum(f.c * a for f, a in zip(forms, part)) // n for part in zip(*(f.a for f in forms))]
    mean = Form(c, slopes, up(4 * sum(abs(f.c) * f.e for f in forms) + apart, n) + len(slopes) + 1)
    mean = mean.widened(ceil(mean.size * u(len(forms) + 3)) + TINY)
    least = mean.c - mean.reach + eps
    if least <= 0:
        return None
    at = math.isqrt(mean.c + eps << BITS)
    below, above = ONE * ONE // (at + 1), up(ONE * ONE, at)
    steepest = up(ONE * ONE, math.isqrt(least << BITS))
    slope = -(below**3 >> 2 * BITS + 1)  # of q^(-1/2): -1/2 q^(-3/2)
    bend = 3 * steepest**5 * mean.reach**2 // (8 * ONE**6)  # 3/8 q^(-5/2) reach^2
    tilt = (above**3 - below**3) * mean.reach >> 3 * BITS
    lost = ceil(steepest * u(3 + SQRT)) + TINY
    flattest = ONE * ONE // (math.isqrt(mean.c + mean.reach + eps << BITS) + 1)
    smallest, largest = flattest - lost, steepest + lost
    lost += bend + tilt + above - below + 8 + len(slopes)
    form = Form(below, [slope * a >> BITS for a in mean.a], ceil(-slope * mean.e) + lost)
    return (form, smallest, largest) if smallest > 0 and max(form.size, mean.size) < LARGEST else None


def gelu_of(form):
    """gelu of a form as computed, to first order around a multiple of 2^-12 next to its centre."""
    at = (form.c >> BITS - 12) << BITS - 12
    (low, high), (slope, steeper) = gelu(at)
    furthest = form.reach + abs(form.c - at)
    bend = up(2 * furthest**2, 5 * ONE)  # |gelu''| is at most 2 phi(0), below 4/5
    error = ceil(abs(slope) * form.e) + high - low + ceil((steeper - slope) * furthest) + bend + len(form.a) + 3
    error += ceil(form.size * u(GELU)) + TINY
    return Form(low + floor(slope * (form.c - at)), [floor(slope * a) for a in form.a], error)


# ---- the model


class Model:
    """Weights and switches from the file, and tables of what each token does at each position."""

    def __init__(self, file):
        config = file["config"]
        require(config["task"] in TASKS, f"this checker does not know the task {config['task']!r}")
        unknown = set(config) - set(SWITCHES) - READ - IDLE
        require(not unknown, f"this checker does not know {', '.join(sorted(unknown))}")
        for name, value in SWITCHES.items():
            found = config.get(name, "nothing")
            require(found == value, f"this checker needs {name} = {value!r}, and finds {found!r}")
        names = ("d_model", "d_head", "d_mlp", "n_heads", "d_vocab", "n_ctx")
        sizes = [config[name] for name in names]
        require(all(type(n) is int and 0 < n < 1000 for n in sizes), f"{', '.join(names)} are not small whole numbers")
        d, e, m, self.heads, self.vocab, n_ctx = sizes
        self.d, self.e, self.m = d, e, m
        shapes = {
            "embed.W_E": (self.vocab, d), "pos_embed.W_pos": (n_ctx, d), "unembed.W_U": (d, self.vocab),
            "blocks.0.attn.W_Q": (self.heads, d, e), "blocks.0.attn.W_K": (self.heads, d, e),
            "blocks.0.attn.W_V": (self.heads, d, e), "blocks.0.attn.W_O": (self.heads, e, d),
            "blocks.0.mlp.W_in": (d, m), "blocks.0.mlp.W_out": (m, d),
            "blocks.0.ln1.w": (d,), "blocks.0.ln2.w": (d,), "ln_final.w": (d,),
        }  # fmt: skip
        require(set(file["weights"]) == set(shapes), "the weights are not those of a one-layer model without biases")
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        w = self.w = {}
        for name, shape in sorted(shapes.items()):
            flat = file["weights"][name]
            require(isinstance(flat, list) and len(flat) == math.prod(shape), f"{name} is not of shape {shape}")
            digest.update(f"{name} {shape} torch.float32".encode())
            numbers = [fixed(text) for text in flat]
            for text, number in zip(flat, numbers):
                require(round32(number) == number, f"{name} holds {text}, which is no float32")
                require(abs(number) < LARGEST_WEIGHT, f"{name} holds a weight too large for the bounds")
                digest.update(struct.pack("<f", float.fromhex(text)))
            for size in reversed(shape[1:]):
                numbers = [numbers[i : i + size] for i in range(0, len(numbers), size)]
            w[name.split(".")[-2 if name.endswith(".w") else -1]] = numbers
        self.fingerprint = digest.hexdigest()
        require(file["fingerprint"] == self.fingerprint, "the weights are not those that the fingerprint names")
        self.eps = fixed(float(config["eps"]).hex())
        scale = config["attn_scale"]
        self.scale = fixed(float(math.sqrt(e) if scale is None else scale).hex())
        require(self.eps > 0 and self.scale > 0, "eps or the scale of attention is not positive")
        self.units_first, plus, equals, self.end, self.sign, self.written_out = TASKS[config["task"]]
        self.steps = DIGITS + self.written_out + len(self.end)
        read = self.steps - 1  # the last token is not read
        self.tokens = [range(10)] * (ANSWER + min(read, DIGITS)) + [range(2)] * (read - DIGITS)
        self.tokens[PLUS], self.tokens[EQUALS] = [plus], [equals]
        require(self.vocab > max(9, plus, equals, *self.end), "the vocabulary is too small")
        require(n_ctx >= len(self.tokens), "the context is too short")
        self.basis = [[fixed(x) for x in row] for row in file["basis"]]
        require(all(len(row) == d for row in self.basis) and 0 < len(self.basis) <= 4, "the basis does not fit")
        # Products of two weights are exact at 320 bits; one more at 480.
        self.W_in = [Row(g * row[k] for g, row in zip(w["ln2"], w["W_in"])) for k in range(m)]
        self.W_out = [Row(column) for column in zip(*w["W_out"])]
        self.unembeds = {answer: self.unembed(answer) for answer in {*range(10), *self.end}}
        self.read_positions()

    def unembed(self, answer):
        """For each other token: rows that give the answer's lead from residual stream and neurons, and their sizes."""
        found = []
        for other in set(range(self.vocab)) - {answer}:
            gained = [(g * row[answer], g * row[other]) for g, row in zip(self.w["ln_final"], self.w["W_U"])]
            direct = [a - b for a, b in gained]
            through = Row(sum(map(mul, row, direct)) for row in self.w["W_out"])
            found.append((Row(direct), through, Row(abs(a) + abs(b) for a, b in gained)))
        return found

    def column(self, total, carry):
        """The carry out of a column whose digits give a total, and the digit that it writes."""
        out, written = divmod(total + self.sign * carry, 10)
        return self.sign * out, written

    def digits(self, total):
        """The pairs of digits with this total."""
        return [(x, y) for x in range(10) for y in range(10) if x + self.sign * y == total]

    @property
    def does(self):
        """What is proved that it does."""
        verb = "adds" if self.sign == 1 else "subtracts"
        return f"{verb} all {'10^20 pairs' if self.written_out else 'pairs with a >= b'}"

    @property
    def totals(self):
        return range(19) if self.sign == 1 else range(-9, 10)

    def ways_above(self, columns, carry):
        """How many choices of digits the highest columns have, with this carry into the lowest of them."""
        n = 10**columns
        if self.written_out:
            return n * n
        return (n * n - n) // 2 if carry else (n * n + n) // 2  # x - carry >= y

    def position(self, operand, column):
        return (PLUS + 1) * operand + (column if self.units_first else DIGITS - 1 - column)

    def stream(self, token, position):
        return [round32(a + b) for a, b in zip(self.w["W_E"][token], self.w["W_pos"][position])]

    def normed(self, x):
        """ln1 of an exact vector, as float32 computes it."""
        inverse = inverse_scale([Form(v, [], 0) for v in x], self.eps)
        require(inverse is not None, "a norm's input may vanish")
        inverse = inverse[0].widened(ceil(inverse[0].size * u(QUOTIENT + 1)))
        return [
            Form(v * g * inverse.c, [], abs(v * g) * inverse.e).shifted(2 * BITS).widened(TINY)
            for v, g in zip(x, self.w["ln1"])
        ]

    def project(self, x, matrix):
        """x W, as float32 computes it."""
        rows, sizes = [Row(column) for column in zip(*matrix)], [f.size for f in x]
        return [row.of(x).shifted(BITS).widened((row.most(sizes) * u(self.d) >> 2 * BITS) + TINY + 1) for row in rows]

    def read_positions(self):
        """Keys, what each value writes along the basis, and bounds of what is left, for every token and position."""
        n, d, w = len(self.tokens), self.d, self.w
        self.normed_at = [{t: self.normed(self.stream(t, j)) for t in self.tokens[j]} for j in range(n)]
        self.keys, self.coords = [], []
        self.off = [0] * d  # the most that all heads write outside the basis and that rounding adds
        for h in range(self.heads):
            at_all = [(j, t, x) for j, at in enumerate(self.normed_at) for t, x in at.items()]
            self.keys.append({(j, t): self.project(x, w["W_K"][h]) for j, t, x in at_all})
            largest, off, coords = [0] * self.e, [0] * d, {}
            columns = [Row(column) for column in zip(*w["W_O"][h])]
            for j, t, x in at_all:
                value = self.project(x, w["W_V"][h])
                largest = [max(old, f.size) for old, f in zip(largest, value)]
                out = [row.of(value).shifted(BITS) for row in columns]
                coords[j, t] = [floor(sum(f.c * b for f, b in zip(out, row))) for row in self.basis]
                along = [floor(sum(map(mul, coords[j, t], column))) for column in zip(*self.basis)]
                off = [max(old, abs(f.c - a) + f.e + 2) for old, f, a in zip(off, out, along)]
            self.coords.append(coords)
            # Roundings of pattern @ values (the sum of exponentials, the quotient, the products), then of W_O.
            lost = [ceil(size * u(2 * n + QUOTIENT)) + (size >> 100) + TINY for size in largest]
            lost = [a + ceil((size + a) * u(self.heads * self.e)) for a, size in zip(lost, largest)]
            self.off = [a + b + ceil(row.most(lost)) + self.e * TINY for a, b, row in zip(self.off, off, columns)]
            require(max(self.off) < LARGEST, "attention may overflow")

    def weights_of(self, h, query, token):
        """Bounds below and above exp(score - shift), for every token at every position that the query sees."""
        q = self.project(self.normed_at[query][token], self.w["W_Q"][h])
        middle = [f.c for f in self.keys[h][query, token]]  # what all keys share does not matter
        scores, furthest, shift = {}, -LARGEST, -LARGEST
        for j in range(query + 1):
            tokens = self.tokens[j] if j < query else [token]
            for t in tokens:
                key = self.keys[h][j, t]
                size = floor(sum(a.size * b.size for a, b in zip(q, key))) + 1
                apart = [b.c - m for b, m in zip(key, middle)]
                lost = sum(a.e * abs(x) + a.size * b.e for a, b, x in zip(q, key, apart))
                lost = ceil(lost + size * u(self.e + 1 + QUOTIENT)) + TINY + 1
                score = sum(a.c * x for a, x in zip(q, apart)) // self.scale
                require(size < LARGEST and abs(score) < LARGEST, "scores may overflow")
                scores[j, t] = score, up(lost * ONE, self.scale) + 1
                furthest = max(furthest, sum(scores[j, t]))
            shift = max(shift, min(scores[j, t][0] for t in tokens))
        require(furthest - shift < 400 * ONE, "attention scores are too far apart")
        found = {}
        for at, (score, lost) in scores.items():
            lost += ceil((furthest - score + lost) * u(1))  # the score minus the largest one
            low, high = exp(score - shift - lost)[0], exp(score - shift + lost)[1]
            found[at] = low - ceil(low * u(EXP)), high + ceil(high * u(EXP))
        return found

    def lowest_lead(self, x, answer, low, high):
        """A lower bound of the answer's lead over all other tokens, where attention writes within [low, high] along the
        basis, and anything up to self.off outside it. Returns None where it finds no bound."""
        middle = [(a + b) // 2 for a, b in zip(low, high)]
        half = [b - m for b, m in zip(high, middle)]
        y = []
        for v, off, column in zip(x, self.off, zip(*self.basis)):
            form = Form(v + floor(sum(map(mul, middle, column))), [floor(h * b) for h, b in zip(half, column)], off)
            y.append(form.widened(ceil(form.size * u(1)) + TINY + len(low) + 1))
        sizes, scale = [f.size for f in y], inverse_scale(y, self.eps)
        if scale is None or max(sizes) >= LARGEST:
            return None
        inverse, _, largest = scale
        neurons = []
        for row in self.W_in:
            rounding = ceil(ceil(row.most(sizes) * largest) * u(QUOTIENT + 1 + self.d)) >> 2 * BITS
            neurons.append(gelu_of((row.of(y).shifted(2 * BITS) * inverse).widened(rounding + TINY + 2)))
        active = [f.size for f in neurons]
        last, lost = [], []
        for form, row in zip(y, self.W_out):
            out = ceil(row.most(active))
            lost.append(ceil(out * u(self.m + 1) + (form.size + 2 * out) * u(1)) + TINY)
            last.append((form + row.of(neurons).shifted(BITS)).widened(lost[-1]))
        sizes, scale = [f.size for f in last], inverse_scale(last, self.eps)
        if scale is None or max(sizes) >= LARGEST:
            return None
        _, smallest, largest = scale
        found = LARGEST
        for direct, through, both in self.unembeds[answer]:
            on_stream = direct.of(y)
            form = Form(on_stream.c * ONE, [a * ONE for a in on_stream.a], (on_stream.e + direct.most(lost)) * ONE)
            form = (form + through.of(neurons)).shifted(3 * BITS)
            lead = form.c - form.reach
            lead = floor(lead * (smallest if lead > 0 else largest))
            rounding = ceil(ceil(both.most(sizes) * largest) * u(QUOTIENT + 1 + self.d)) >> 2 * BITS
            found = min(found, lead - rounding - TINY - 2)
        return found


# ---- leaves


class Query:
    """One step and the token at its position: its leaves, and what attention can write on each."""

    def __init__(self, model, target, token, columns=1):
        self.model, self.target, self.token, self.own = model, target, token, min(target, DIGITS - 1)
        self.columns, self.low = columns, self.own + 1 - columns  # of the window: how many, and the lowest
        self.position = EQUALS + target
        self.ways = [list(self.of_column(column)) for column in range(self.own + 1)]

    @cached_property
    def tables(self):
        """Tables [head][symbol][sign] of levels, and of what the dynamic programme found at each level."""
        symbols = range(len(self.model.basis))
        return [
            [[self.tabulate(self.terms(h, k, sign)) for sign in (1, -1)] for k in symbols]
            for h in range(self.model.heads)
        ]

    @cached_property
    def weights(self):
        """What each head weighs every token at every position with."""
        return [self.model.weights_of(h, self.position, self.token) for h in range(self.model.heads)]

    @cached_property
    def most(self):
        """An upper bound of each head's sum of weights."""
        return [
            sum(max(high for (at, _), (_, high) in weights.items() if at == j) for j in range(self.position + 1))
            for weights in self.weights
        ]

    def terms(self, h, k, sign):
        return [(j, t, *ends, sign * self.model.coords[h][j, t][k]) for (j, t), ends in self.weights[h].items()]

    def shown(self, column):
        """Whether the digit that a column writes is read before the query's position."""
        return column <= self.target - 2

    def of_column(self, column):
        """Yield carry in, total of the digits, carry out and digit written, where they agree with the query's token."""
        for carry in (0, 1):
            for digits in self.model.totals:
                out, written = self.model.column(digits, carry)
                last = self.target == DIGITS + 1 and column == DIGITS - 1  # the token is the last carry
                if (written == self.token or column != self.target - 1) and (out == self.token or not last):
                    yield carry, digits, out, written

    def tabulate(self, terms):
        least, most = min(term[-1] for term in terms), max(term[-1] for term in terms)
        levels = [least + (most - least) * i // (LEVELS - 1) for i in range(LEVELS)]
        return levels, [self.best(self.gained(terms, level)) for level in levels]

    def gained(self, terms, level):
        """Upper bounds of w (c - level), for every token at every position."""
        f = [{} for _ in range(self.position + 1)]
        for j, t, low, high, c in terms:
            f[j][t] = (c - level) * (high if c > level else low)
        return f

    def best(self, f):
        """The largest sum of what tokens give, outside the window, by the carry into it, and the window's own terms."""
        model, own = self.model, self.own
        fixed_terms = f[PLUS][model.tokens[PLUS][0]] + f[self.position][self.token]
        if self.position > EQUALS:
            fixed_terms += f[EQUALS][model.tokens[EQUALS][0]]
        below = [fixed_terms, None]
        for column in range(self.low):
            a, b = f[model.position(0, column)], f[model.position(1, column)]
            tops = {total: max(a[x] + b[y] for x, y in pairs) for total, pairs in self.pairs.items()}
            new = [None, None]
            for carry, digits, out, written in self.ways[column]:
                if below[carry] is not None:
                    value = below[carry] + tops[digits] + (f[ANSWER + column][written] if self.shown(column) else 0)
                    new[out] = value if new[out] is None else max(new[out], value)
            below = new
        above = 0
        for column in range(own + 1, DIGITS):
            above += max(f[model.position(0, column)].values()) + max(f[model.position(1, column)].values())
        window = [
            (f[model.position(0, k)], f[model.position(1, k)], f[ANSWER + k] if self.shown(k) else None)
            for k in range(self.low, own + 1)
        ]
        return [None if value is None else value + above for value in below], window

    @cached_property
    def pairs(self):
        return {total: self.model.digits(total) for total in self.model.totals}

    def leaves(self):
        """Yield the number of pairs, right token, and leaf: the carry into the window, and the digits of a and b and
        the one written in each of its columns."""
        count, model = [1, 0], self.model
        for column in range(self.low):
            new = [0, 0]
            for carry, digits, out, _ in self.ways[column]:
                new[out] += count[carry] * len(self.pairs[digits])
            count = new
        found = [(carry, carry, ()) for carry in (0, 1)]
        for column in range(self.low, self.own + 1):
            found = [
                (first, out, (*above, (x, y, written)))
                for first, into, above in found
                for carry, digits, out, written in self.ways[column]
                if carry == into
                for x, y in self.pairs[digits]
            ]
        for carry, out, digits in found:
            number = count[carry] * model.ways_above(DIGITS - 1 - self.own, out)
            answers = [digits[-1][-1], *([out] if model.written_out else []), *model.end]
            if number:
                yield number, answers[max(0, self.target - DIGITS + 1)], (carry, digits)

    @cached_property
    def wider(self):
        """The query with one column more in its window, and its leaves by the leaf here that they are parts of."""
        query, parts = Query(self.model, self.target, self.token, self.columns + 1), {}
        for number, _, leaf in query.leaves():
            carry, ((x, y, _), *digits) = leaf
            into, _ = self.model.column(x + self.model.sign * y, carry)
            parts.setdefault((into, tuple(digits)), []).append((number, leaf))
        return query, parts

    def ends(self, leaf):
        """The least and largest coordinates of what attention writes on a leaf."""
        highs, lows = ([self.end(k, side, leaf) for k in range(len(self.model.basis))] for side in (0, 1))
        return [-low for low in lows], highs

    def end(self, k, side, leaf):
        """An upper bound of a coordinate (side 0) or of its negative (side 1), which all heads write together."""
        bounds = [largest(symbols[k][side], leaf) for symbols in self.tables]
        if len(bounds) == 1:
            return bounds[0]
        # Each head's N - L D is at most 0, so that dividing it by the largest D instead of D can only raise it.
        together = [{} for _ in range(self.position + 1)]
        for h, level in enumerate(bounds):
            for j, tokens in enumerate(self.gained(self.terms(h, k, (1, -1)[side]), level)):
                for t, value in tokens.items():
                    together[j][t] = together[j].get(t, 0) + up(value, self.most[h])
        return sum(bounds) + min(0, on_leaf(self.best(together), leaf))


def on_leaf(found, leaf):
    """What the dynamic programme found, with the digits of a leaf in the window."""
    (below, window), (carry, digits) = found, leaf
    return below[carry] + sum(
        a[x] + b[y] + (z[written] if z else 0) for (a, b, z), (x, y, written) in zip(window, digits)
    )


def largest(table, leaf):
    """An upper bound of the root of the sum over a leaf: the sum is convex in the level, so chords lie above it."""
    levels, found = table

    def total(i):
        return on_leaf(found[i], leaf)

    if total(0) <= 0:
        return levels[0]
    # At the last level every term is at most 0.
    at = bisect_left(range(LEVELS - 1), True, key=lambda i: total(i) <= 0) - 1
    first, second = total(at), total(at + 1)
    return levels[at] + up((levels[at + 1] - levels[at]) * first, first - second)


# ---- the check


def proved(model, x, answer, low, high, margin):
    """The bound above the margin that was proved on a box, or None if there is no proof."""
    boxes, smallest = [(low, high, HALVINGS)], LARGEST
    while boxes:
        low, high, halvings = boxes.pop()
        bound = model.lowest_lead(x, answer, low, high)
        if bound is not None and bound > margin:
            smallest = min(smallest, bound)
        elif halvings:
            k = max(range(len(low)), key=lambda k: high[k] - low[k])
            middle = [(low[k] + high[k]) // 2]
            boxes.append((low, high[:k] + middle + high[k + 1 :], halvings - 1))
            boxes.append((low[:k] + middle + low[k + 1 :], high, halvings - 1))
        else:
            return None
    return smallest


def proved_on_leaf(query, x, number, answer, leaf, margin):
    """As :func:`proved`, on a leaf; where that is not enough, on each of its parts in a window of one column more."""
    bound = proved(query.model, x, answer, *query.ends(leaf), margin)
    if bound is not None or not query.low or query.columns == WIDEST:
        return bound
    wider, parts = query.wider
    require(sum(part for part, _ in parts[leaf]) == number, "the parts of a leaf are not all of it")
    bounds = []
    for count, part in parts[leaf]:
        bounds.append(proved_on_leaf(wider, x, count, answer, part, margin))
        if bounds[-1] is None:
            return None
    return min(bounds)


def check(file):
    """The smallest proved bound of a lead, and the model. Raises Rejected if the file does not prove its claim."""
    require(
        isinstance(file, dict) and file.get("format") == 1 and "weights" in file,
        "the file does not hold a model's weights; interp certify MODEL --standalone FILE writes one that does",
    )
    model = Model(file)
    margin = fixed(file["margin"])
    require(margin > 0, "the margin is not positive")
    smallest = LARGEST
    for target in range(model.steps):
        pairs = 0
        for token in model.tokens[EQUALS + target]:
            query = Query(model, target, token)
            x = model.stream(token, query.position)
            for number, answer, leaf in query.leaves():
                bound = proved_on_leaf(query, x, number, answer, leaf, margin)
                require(bound is not None, f"no proof at step {target + 1} for token, carry and digits {token}, {leaf}")
                smallest, pairs = min(smallest, bound), pairs + number
        require(pairs == model.ways_above(DIGITS, 0), f"step {target}'s leaves hold {pairs} pairs")
        print(f"step {target + 1} of {model.steps}: all {pairs} pairs", file=sys.stderr, flush=True)
    return smallest, model


def without_repeats(pairs):
    """An object of JSON; a key that occurs twice would be read in one way here and in another elsewhere."""
    require(len(dict(pairs)) == len(pairs), "a key occurs twice")
    return dict(pairs)


def plain(problem):
    """What is wrong, on one line of ASCII, whatever the file put into it."""
    return f"{type(problem).__name__}: {problem}".encode("unicode_escape").decode()


def main(paths):
    if not paths or paths[0].startswith("-"):
        print(__doc__)
        return 0 if paths and paths[0] in ("-h", "--help") else 2
    status = 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as opened:
                smallest, model = check(json.load(opened, object_pairs_hook=without_repeats))
        except (Rejected, OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as problem:
            print(f"{path}: rejected. {plain(problem)}.")
            status = 1
        else:
            print(f"{path}: proved. The model with fingerprint {model.fingerprint} {model.does} rightly in float32.")
            print(f"The right token leads by more than {(smallest * 10**4 >> BITS) / 10**4} at every step.")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
