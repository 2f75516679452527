"""Multiplication of two numbers with the two-stage scratchpad (Position Coupling, ICLR 2025, section 5).

``$37*925=581+470+333=58100>52900>52243$``. Stage 1 has the products of A with each digit of B, units digit first;
stage 2 has their running sums, where each product is shifted by one more column. All numbers of the response are
reversed and zero-padded to the most that their stage needs: M + 1 digits in stage 1, M + N in stage 2.

Position ids have three levels (Figure 8b): 1 couples digits of A with those of every product, 2 counts the digits of
B, the products and the running sums, 3 is the significance in stage 2, in which product k starts k - 1 columns higher.
Where a level does not apply, the id is 0. Without the scratchpad (``$37*925=52243$``) there is only level 1, which is
the significance in all three numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.named.position_coupling.written_numbers import (
    Counts,
    Digits,
    Lengths,
    Segments,
    places,
    propagate_carries,
    with_carries,
)
from models.tasks.number_digits import significant_digits, spelt_numbers, to_digits
from models.tasks.roles import Role

VOCABULARY = "0123456789*=+>$"
TIMES, EQUALS, PLUS, ARROW, DOLLAR = range(10, 15)


class Multiplication(SequenceTask):
    """A (up to ``first_digits`` digits) times B (up to ``second_digits``); operands have their own lengths."""

    name = "multiplication"
    vocabulary = VOCABULARY
    operator = "*"
    example = "37*925"
    n_operands = 2

    @typed
    def __init__(
        self,
        first_digits: int = 2,
        second_digits: int = 3,
        scratchpad: bool = True,
        max_digits: int | None = None,
    ):
        if first_digits < 1 or second_digits < 1:
            raise UserError(f"Operands have at least one digit, not {first_digits} and {second_digits}.")
        if max_digits is not None and max(first_digits, second_digits) > max_digits:
            raise UserError(f"This model multiplies numbers of at most {max_digits} digits.")
        self.first_digits, self.second_digits = first_digits, second_digits
        self.scratchpad, self.max_digits = scratchpad, max_digits
        self.n_digits = max(first_digits, second_digits)
        self.shape = first_digits, second_digits
        self.shape_text = f"T_M({first_digits} x {second_digits} digits)"
        self.n_position_levels = 3 if scratchpad else 1
        self.response_pattern = r"(\d+\+)*(\d*|\d+=(\d+>)*\d*)" if scratchpad else r"\d*"

    # ---- shape

    def at(self, *shape: int) -> Multiplication:
        return Multiplication(*shape, scratchpad=self.scratchpad, max_digits=self.max_digits)

    def shape_of(self, numbers: Sequence[int]) -> tuple[int, ...]:
        if len(numbers) != 2:
            raise UserError(f"A product has two operands, not {len(numbers)}; write it like '{self.example}'.")
        return tuple(len(to_digits(number)) for number in numbers)

    def as_problems(self, problems: Any) -> Int[Tensor, "n 2 column"]:
        """As for every task, but each operand has its own limit."""
        digits = super().as_problems(problems)
        for name, number, most in zip(("first", "second"), digits.unbind(1), self.shape, strict=True):
            longest = int(significant_digits(number).max()) if len(number) else 0
            if longest > most:
                raise UserError(f"The {name} operand has at most {most} digits in this shape, not {longest}.")
        return digits

    @property
    def operand_lengths(self) -> tuple[int, ...]:
        return self.shape

    # ---- sequences

    def segments(self, digits: Digits, n_operands: Counts = None, n_digits: Lengths = None) -> Segments:
        rows, device = len(digits), digits.device
        if n_digits is None:
            n_digits = torch.tensor([self.shape], device=device).expand(rows, 2)
        M, N = n_digits[:, :1], n_digits[:, 1:]  # [row, 1], the paper's letters
        columns = int(n_digits.sum(1).max())
        counted = torch.arange(digits.shape[2], device=device) < n_digits[..., None]
        first, second = (digits * counted).unbind(1)
        most = int(N.max())  # the most products in any row
        second = second[:, :most]
        products = propagate_carries(first[:, None] * second[..., None], first.shape[1] + 1)
        pad = lambda x: torch.nn.functional.pad(x, (0, columns + 1 - x.shape[-1]))  # noqa: E731
        products = pad(products[..., : columns + 1])
        shifted = torch.stack([products[:, k].roll(k, -1) for k in range(most)], 1)  # the room above is zeros
        sums = propagate_carries(shifted.cumsum(1), columns + 1)
        numbers = torch.cat((pad(first)[:, None], pad(second)[:, None], products, sums), 1)
        if not self.scratchpad:
            numbers = torch.cat((numbers[:, :2], sums[:, -1:]), 1)

        steps = N if self.scratchpad else torch.zeros_like(N)
        index = torch.arange(2 + 2 * most if self.scratchpad else 3, device=device).expand(rows, -1)
        in_query, in_first = index < 2, (index >= 2) & (index < 2 + steps)
        step = index - 2 - torch.where(in_first, 0, steps)
        if self.scratchpad:
            number = torch.where(in_query, index, torch.where(in_first, index, 2 + most + step))
        else:
            number = index
        used = index < (2 + 2 * steps if self.scratchpad else 3)
        width = torch.where(index == 0, M, torch.where(index == 1, N, torch.where(in_first, M + 1, M + N)))
        delimiter = torch.where(
            index == 0,
            TIMES,
            torch.where(
                index == 1,
                EQUALS,
                torch.where(
                    in_first,
                    torch.where(index == 1 + steps, EQUALS, PLUS),
                    torch.where(step == (steps - 1 if self.scratchpad else 0), DOLLAR, ARROW),
                ),
            ),
        )
        return Segments(
            numbers=numbers,
            number=number.clamp(min=0, max=numbers.shape[1] - 1),
            width=width,
            downwards=in_query,
            delimiter=delimiter,
            used=used,
            first_response=torch.full((rows,), 2, device=device),
        )

    def segment_role(self, segment: int, column: int) -> Role:
        """``A[k]``, ``B[k]``; ``p3[k]`` a digit of the third product; ``c3[k]`` of the third running sum."""
        N = self.second_digits
        if segment < 2:
            label = "AB"[segment]
            return (
                Role("delimiter", "*="[segment])
                if column < 0
                else Role("operand", f"{label}[{column}]", column, segment + 1)
            )
        if not self.scratchpad:
            return Role("eos", "EOS") if column < 0 else Role("answer", f"c[{column}]", column, 1)
        in_first = segment < 2 + N
        step = segment - 1 if in_first else segment - 1 - N
        if column < 0:
            if in_first:
                return Role("delimiter", "=" if step == N else "+", index=step + 1)
            return Role("eos", "EOS") if step == N else Role("delimiter", ">", index=step + 1)
        if in_first:
            return Role("scratchpad", f"p{step}[{column}]", column, step)
        return Role("answer" if step == N else "scratchpad", f"c{step}[{column}]", column, step)

    def position_ids(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos level"]:
        digit = tokens < TIMES
        back, ahead = places(tokens, ~digit)
        count = lambda token: (tokens == token).long().cumsum(1)  # noqa: E731  (a token counts itself)
        equals = count(EQUALS)
        before_times = count(TIMES) == 0
        special = tokens == DOLLAR
        in_second_operand = ~before_times & (tokens != TIMES) & (equals == 0)
        response = (equals >= 1) & ~special
        if not self.scratchpad:
            level = torch.where(response, 1 + back, torch.where(tokens == TIMES, 1, 1 + ahead))
            return level.masked_fill(special, 0)[..., None]
        first = response & (equals == 1)
        second = response & (equals > 1)
        number = 1 + torch.where(second, count(ARROW), count(PLUS))
        level1 = torch.where(before_times, 1 + ahead, torch.where(first, 1 + back, 0))
        level2 = torch.where(in_second_operand, ahead, torch.where(response, number, 0))
        level3 = torch.where(first, number + back, torch.where(second, 1 + back, 0))
        return torch.stack([level.masked_fill(special, 0) for level in (level1, level2, level3)], -1)

    # ---- ground truth

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int | None]:
        """The product, from the last running sum."""
        width = self.first_digits + self.second_digits
        return spelt_numbers(torch.as_tensor(answer_tokens)[:, -width - 1 : -1])

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n step column"]]:
        """Both stages, one row per digit of B.

        product: A times that digit, [n, N, M + 1]; product_carry: the carry into each of its columns. running_sum,
        [n, N, M + N], and sum_carry, the carry into each of its columns (at most 1).
        """
        digits = self.as_problems(problems)
        M, N = self.shape
        first, second = digits[:, 0, :M], digits[:, 1, :N]
        raw = first[:, None] * second[..., None]
        product, product_carry = with_carries(raw, M + 1)
        shifted = torch.stack([torch.nn.functional.pad(product[:, k], (k, N - 1 - k)) for k in range(N)], 1)
        running = propagate_carries(shifted.cumsum(1), M + N)
        before = torch.cat((torch.zeros_like(running[:, :1]), running[:, :-1]), 1)
        _, sum_carry = with_carries(before + shifted, M + N)
        return {
            "product": product,
            "product_carry": product_carry,
            "running_sum": running,
            "sum_carry": sum_carry,
        }

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """The longest run of columns into which a running sum carries."""
        carries = self.variables(problems)["sum_carry"].flatten(1, 1)
        longest = run = torch.zeros_like(carries[..., 0])
        for column in carries.unbind(-1):
            run = (run + 1) * column
            longest = torch.maximum(longest, run)
        return longest.amax(1)

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """Positions by their meaning to one target.

        Stage 1 needs digits k and k - 1 of A and the digit of B; stage 2 needs digits k and k - 1 of the shifted
        product and of the running sum before.
        """
        role, query = self.target_roles[target], self.query_positions[target]
        names = ("own operand", "previous operand", "multiplier", "own product", "own running sum")
        groups: dict[str, list[int]] = {
            name: [] for name in (*names, "previous product", "previous running sum", "previous output")
        }
        column, step, N = role.column, role.index, self.second_digits
        if column is not None and step is not None and self.scratchpad:
            if role.label.startswith("p"):
                for name, k in (("own operand", column), ("previous operand", column - 1)):
                    groups[name] = [self.position_of(0, k)] if 0 <= k < self.first_digits else []
                groups["multiplier"] = [self.position_of(1, step - 1)]
                groups["previous output"] = [self.position_of(1 + step, column - 1)] if column else []
            else:
                for name, k in (("own", column), ("previous", column - 1)):
                    shifted = k - (step - 1)
                    if 0 <= shifted <= self.first_digits:
                        groups[f"{name} product"] = [self.position_of(1 + step, shifted)]
                    if k >= 0 and step > 1:
                        groups[f"{name} running sum"] = [self.position_of(N + step, k)]
                groups["previous output"] = [self.position_of(1 + N + step, column - 1)] if column else []
        return self._with_rest(groups, query)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 2 column"]:
        """T_M(first_digits, second_digits): operands of exactly these lengths, uniform."""
        digits = torch.zeros(n, 2, self.n_digits, dtype=torch.int64, device=generator.device)
        for operand, length in enumerate(self.shape):
            drawn = torch.randint(10, (n, length), generator=generator, device=generator.device)
            if length > 1:
                drawn[:, -1] = torch.randint(1, 10, (n,), generator=generator, device=generator.device)
            digits[:, operand, :length] = drawn
        return digits
