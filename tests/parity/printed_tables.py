"""Tables 4 to 26 and Figure 4 of Position Coupling's appendix D, transcribed as printed.

The example is ``$057+048+096=000>750>501>102`` with position offsets s1 = 4 and s2 = 2. Entries: numbers and fractions;
``v7`` the code v_7 of the row's level; ``e8`` the unit vector e_8 of R^10; ``rP`` and ``rP1`` the roots of P and P1; a
row of ``0*`` is all zeros, as is a vector ``0``. Columns are tokens: all 28 of them, or the 16 from "=" on.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKENS = "$057+048+096=000>750>501>102"
OFFSETS = (4, 2)
FROM_EQUALS = 12  # index of "="

FIGURE_4 = {
    "Token": "057+048+096=000>750>501>102",
    "PosID1": "432143214321234123412341234",
    "PosID2": "111122223331111222233334444",
}


@dataclass(frozen=True)
class PrintedTable:
    caption: str
    rows: dict[str, str]
    response_only: bool = False


def _stream(**filled: str) -> dict[str, str]:
    """A table over the residual stream whose rows are zero except for those given."""
    names = ("NUM", "IS_BOS", "FULL_ONES", "PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS", "SUM", "ARROW", "EOS")
    positions = ("POS_1", "POS_1_NEXT", "POS_2", "POS_2_NEXT")
    return {name: filled.get(name, "0*") for name in (*names, *positions)}


ONES_28 = " ".join(["1"] * 28)
NUM_28 = "0 0 5 7 0 0 4 8 0 0 9 6 0  0 0 0 0 7 5 0 0 5 0 1 0 1 0 2"
POS_1 = "0 v7 v6 v5 v4 v7 v6 v5 v4 v7 v6 v5 v4  v5 v6 v7 v4 v5 v6 v7 v4 v5 v6 v7 v4 v5 v6 v7"
POS_1_NEXT = "0 v8 v7 v6 v5 v8 v7 v6 v5 v8 v7 v6 v5  v6 v7 v8 v5 v6 v7 v8 v5 v6 v7 v8 v5 v6 v7 v8"
POS_2 = "0 v2 v2 v2 v2 v3 v3 v3 v3 v4 v4 v4 v2  v2 v2 v2 v3 v3 v3 v3 v4 v4 v4 v4 v5 v5 v5 v5"
POS_2_NEXT = "0 v3 v3 v3 v3 v4 v4 v4 v4 v5 v5 v5 v3  v3 v3 v3 v4 v4 v4 v4 v5 v5 v5 v5 v6 v6 v6 v6"
ROOT_P = " ".join(["rP"] * 28)
ROOT_P1 = " ".join(["rP1"] * 28)
BOS_ONLY = "1" + " 0" * 27
TRIPLED_NUM = "0 0 15 21 0 0 12 24 0 0 27 18 0  0 0 0 0 21 15 0 0 15 0 3 0 3 0 6"

# From "=" on.
SUMS = "0 0 0 0 7 5 0 0 15 9 0 0 11 9 1 0"
CARRIES = "0 0 0 0 0 7 5 0 0 15 9 0 0 11 9 1"
ARROWS = "1/4 1/4 1/4 1 1/5 1/5 1/5 1 1/6 1/6 1/6 1 1/7 1/7 1/7 1"
ENDS = "1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/2 1/3 1/3 1/3 1/2 1/2 1/2 1/2"
RESPONSE = {
    "NUM": "0 0 0 0 0 7 5 0 0 5 0 1 0 1 0 2",
    "FULL_ONES": "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    "PRE_SUM": SUMS,
    "PRE_CARRY": CARRIES,
    "PRE_ARROW": ARROWS,
    "POS_1": "v4 v5 v6 v7 v4 v5 v6 v7 v4 v5 v6 v7 v4 v5 v6 v7",
    "POS_1_NEXT": "v5 v6 v7 v8 v5 v6 v7 v8 v5 v6 v7 v8 v5 v6 v7 v8",
    "POS_2": "v2 v2 v2 v2 v3 v3 v3 v3 v4 v4 v4 v4 v5 v5 v5 v5",
    "POS_2_NEXT": "v3 v3 v3 v3 v4 v4 v4 v4 v5 v5 v5 v5 v6 v6 v6 v6",
}
PREDICTED_SUM = "e1 e1 e1 e1 e8 e6 e1 e1 e6 e1 e2 e1 e2 e1 e3 e1"
PREDICTED_ARROW = "0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1"
PREDICTED_EOS = "0 -1 -1 0 -1 -1 -1 0 -1 -1 -1 0 0 0 0 1"

TABLES = {
    4: PrintedTable(
        "initial encoding X(0)",
        _stream(
            NUM=NUM_28,
            IS_BOS=BOS_ONLY,
            FULL_ONES=ONES_28,
            POS_1=POS_1,
            POS_1_NEXT=POS_1_NEXT,
            POS_2=POS_2,
            POS_2_NEXT=POS_2_NEXT,
        ),
    ),
    5: PrintedTable("Q1 X(0) / sqrt(eta)", {"1-P1": POS_1_NEXT, "P1+1-P": POS_2, "P+1": ROOT_P}),
    6: PrintedTable("K1 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1-P": POS_2_NEXT, "P+1": "rP" + " 0" * 27}),
    7: PrintedTable("U1 V1 X(0)", _stream(PRE_SUM=TRIPLED_NUM)),
    8: PrintedTable("U1 V1 X(0) A1", _stream(PRE_SUM=SUMS), response_only=True),
    9: PrintedTable("Q2 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1-P": POS_2, "P+1": ROOT_P}),
    10: PrintedTable("K2 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1-P": POS_2_NEXT, "P+1": "rP" + " 0" * 27}),
    11: PrintedTable("U2 V2 X(0)", _stream(PRE_CARRY=TRIPLED_NUM)),
    12: PrintedTable("U2 V2 X(0) A2", _stream(PRE_CARRY=CARRIES), response_only=True),
    13: PrintedTable("Q3 X(0) / sqrt(eta)", {"1-P1": POS_1_NEXT, "P1+1": ROOT_P1}),
    14: PrintedTable("K3 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1": "rP1" + " 0" * 27}),
    15: PrintedTable("U3 V3 X(0)", _stream(PRE_ARROW=BOS_ONLY)),
    16: PrintedTable("U3 V3 X(0) A3", _stream(PRE_ARROW=ARROWS), response_only=True),
    17: PrintedTable("Q4 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1-P": POS_2, "P+1": ROOT_P}),
    18: PrintedTable("K4 X(0) / sqrt(eta)", {"1-P1": POS_1, "P1+1-P": POS_2, "P+1": "rP" + " 0" * 27}),
    19: PrintedTable("U4 V4 X(0)", _stream(PRE_EOS=BOS_ONLY)),
    20: PrintedTable("U4 V4 X(0) A4", _stream(PRE_EOS=ENDS), response_only=True),
    21: PrintedTable("Y(1)", _stream(**RESPONSE, PRE_EOS=ENDS), response_only=True),
    22: PrintedTable(
        "FF1(Y(1))",
        _stream(SUM=PREDICTED_SUM, ARROW=PREDICTED_ARROW, EOS=PREDICTED_EOS),
        response_only=True,
    ),
    23: PrintedTable(
        "X(1)",
        _stream(
            **RESPONSE,
            PRE_EOS="1/2 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/3 1/2 1/2 1/2 1/2",
            SUM=PREDICTED_SUM,
            ARROW=PREDICTED_ARROW,
            EOS=PREDICTED_EOS,
        ),
        response_only=True,
    ),
    # Columns of Table 24 are the vocabulary 0 ... 9 + = > $.
    24: PrintedTable(
        "transposed W_out",
        {
            **{name: "0*" for name in ("NUM", "IS_BOS", "FULL_ONES", "PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS")},
            "SUM1": "1 0 0 0 0 0 0 0 0 0 0 0 0 0",
            "SUM2": "0 1 0 0 0 0 0 0 0 0 0 0 0 0",
            "SUM3": "0 0 1 0 0 0 0 0 0 0 0 0 0 0",
            "SUM4": "0 0 0 1 0 0 0 0 0 0 0 0 0 0",
            "SUM5": "0 0 0 0 1 0 0 0 0 0 0 0 0 0",
            "SUM6": "0 0 0 0 0 1 0 0 0 0 0 0 0 0",
            "SUM7": "0 0 0 0 0 0 1 0 0 0 0 0 0 0",
            "SUM8": "0 0 0 0 0 0 0 1 0 0 0 0 0 0",
            "SUM9": "0 0 0 0 0 0 0 0 1 0 0 0 0 0",
            "SUM10": "0 0 0 0 0 0 0 0 0 1 0 0 0 0",
            "ARROW": "0 0 0 0 0 0 0 0 0 0 0 0 10 0",
            "EOS": "0 0 0 0 0 0 0 0 0 0 0 0 0 100",
            **{name: "0*" for name in ("POS_1", "POS_1_NEXT", "POS_2", "POS_2_NEXT")},
        },
    ),
    25: PrintedTable(
        "W_out X(1)",
        {
            "0": "1 1 1 1 0 0 1 1 0 1 0 1 0 1 0 1",
            "1": "0 0 0 0 0 0 0 0 0 0 1 0 1 0 0 0",
            "2": "0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0",
            "3": "0*",
            "4": "0*",
            "5": "0 0 0 0 0 1 0 0 1 0 0 0 0 0 0 0",
            "6": "0*",
            "7": "0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0",
            "8": "0*",
            "9": "0*",
            "+": "0*",
            "=": "0*",
            ">": "0 0 0 10 0 0 0 10 0 0 0 10 0 0 0 10",
            "$": "0 -100 -100 0 -100 -100 -100 0 -100 -100 -100 0 0 0 0 100",
        },
        response_only=True,
    ),
    26: PrintedTable("O", {"O": "0 0 0 > 7 5 0 > 5 0 1 > 1 0 2 $"}, response_only=True),
}
