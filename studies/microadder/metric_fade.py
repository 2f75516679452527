"""Ten-digit additions whose share of carry-rich problems follows each seed's accuracy: MicroAdder's earlier way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.errors import UserError
from models.training.ten_digit_problems import AdditionProblems, CarryMix

#: The share until the last step of the fade, after which there are no carry-rich problems.
FULL = CarryMix(0.8, 100_000, 100_001)


@dataclass(frozen=True)
class MetricFadeProblems(AdditionProblems):
    """Problems with a share of carry-rich ones that is full up to one token accuracy, and zero from another on.

    The paper (section 3.2) says that carry-rich problems go at a token accuracy above 0.9 and come back below; the
    public code lowers the share linearly between 0.7 and 0.9 and ends it for good at step 100,000. Token accuracy is
    that of a seed's last validation on problems of the natural distribution. Before the first, the share is full.
    """

    carry_mix: CarryMix | None = FULL
    fade_token: float = 0.7
    zero_token: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fade_token <= self.zero_token <= 1:
            raise UserError(
                f"The share fades between token accuracies, not between {self.fade_token} and {self.zero_token}."
            )

    def after(self, token_accuracy: float) -> AdditionProblems:
        """The problems for a seed with this token accuracy at its last validation."""
        left = (self.zero_token - token_accuracy) / max(1e-9, self.zero_token - self.fade_token)
        mix = self.carry_mix and replace(self.carry_mix, share=self.carry_mix.share * min(1.0, max(0.0, left)))
        return AdditionProblems(self.digit_curriculum, mix)
