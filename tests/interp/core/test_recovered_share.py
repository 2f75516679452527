"""The share of a loss that comes back, on losses whose share is known."""

from __future__ import annotations

import numpy as np
import pytest

from interp.core.recovered_share import recovered_share
from interp.core.stats import unseen


def test_the_share_is_the_ratio_of_means():
    clean, scrubbed, scrambled = np.array([0.0, 2.0]), np.array([1.0, 3.0]), np.array([4.0, 6.0])
    share, low, high = recovered_share(scrubbed, scrambled, clean, 0)
    assert share == pytest.approx((5 - 2) / (5 - 1))
    missed = unseen(2)  # both examples say the same, and a third one may say anything
    assert (low, high) == pytest.approx((share - missed * share, share + missed * (1 - share)))
    assert np.isnan(recovered_share(scrubbed, clean, scrambled, 0)).all()


def test_it_is_one_where_all_comes_back_zero_where_nothing_does_and_undefined_without_harm():
    rng = np.random.default_rng(0)
    clean = rng.uniform(0, 0.1, 50)
    ablated, missed = clean + rng.uniform(1, 3, 50), unseen(50)
    assert recovered_share(clean, ablated, clean, 0) == pytest.approx((1, 1 - missed, 1))
    assert recovered_share(ablated, ablated, clean, 0) == pytest.approx((0, 0, missed))
    value, low, high = recovered_share((ablated + clean) / 2 + rng.normal(0, 0.1, 50), ablated, clean, 0)
    assert low < value < high and value == pytest.approx(0.5, abs=0.05)
    assert np.isnan(recovered_share(clean, clean, clean, 0)).all()
    assert np.isnan(recovered_share(clean, clean + 5e-4, clean, 0, least=1e-3)).all()
    assert recovered_share(2 * ablated, ablated, clean, 0)[2] < 0, "worse than nothing"


def test_draws_without_room_do_not_count_and_warn_of_nothing():
    """Of 20 examples four have something to recover: one draw in a hundred has none of them."""
    room = np.where(np.arange(20) < 4, 5.0, 0.0)
    with np.errstate(all="raise"):
        value, low, high = recovered_share(0.5 * room, room, np.zeros(20), 0)
    assert value == pytest.approx(0.5) and 0 <= low < 0.5 < high <= 1
