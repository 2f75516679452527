"""Seconds of CPU time to score AdderBoard's 10,010 sums: one by one, greedy in batches, teacher-forced."""

from __future__ import annotations

import time

import models
from models.evaluation import predict
from models.tasks.named.adder_test_sets import ADDER_BOARD

ONE_BY_ONE = 100  # problems decoded one by one; the time is scaled up


def cpu_seconds(call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> dict[str, float]:
    model, problems = models.build("microadder-57"), ADDER_BOARD.problems
    predict(model, problems[:512])
    few = problems[:ONE_BY_ONE]
    rows = {
        f"greedy, one by one (x{len(problems) // ONE_BY_ONE} of {ONE_BY_ONE})": cpu_seconds(
            lambda: predict(model, few, "greedy", batch_size=1)
        )
        * len(problems)
        / len(few),
        "greedy, in batches": min(cpu_seconds(lambda: predict(model, problems, "greedy")) for _ in range(3)),
        "teacher-forced": min(cpu_seconds(lambda: predict(model, problems)) for _ in range(5)),
    }
    slowest = max(rows.values())
    print("Scoring 10,010 sums with MicroAdder-57, one CPU thread; CPU seconds, the same verdicts")
    for name, seconds in rows.items():
        print(f"{name:38}{seconds:9.3f}{slowest / seconds:10.1f} times faster than the slowest")
    one, batches, forced = rows.values()
    return {"Scoring 10,010 sums, greedy in batches: than one by one": one / batches} | {
        "Scoring 10,010 sums, teacher-forced: than one by one": one / forced
    }
