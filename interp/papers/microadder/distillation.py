"""Whether a teacher helps a small student: ``interp reproduce microadder:distillation`` trains with and without one.

The paper (section 7.3) supposes that a teacher of 57 parameters could guide a smaller student. Students have 57 and 53
parameters and the placed start (:mod:`interp.papers.microadder.starts`), with which about one seed in seven groks
without help. Teachers are the certified microadder-57 and the adder of three numbers that was set by hand. Every
student starts from the same numbers and sees the same problems with and without a teacher. Half of the seeds, 0 to 31,
are those on which the start was found, so that shares without a teacher may flatter the start.

Weight and temperature are Hinton's customary ones and were fixed before any student was trained, as were the teachers'
sharpnesses: powers of two at which a softened teacher gives the right digit a probability between 0.8 and 0.9 on
uniform problems (0.86 in both). The logits of the adder by hand are small, since its digits stand close together.
"""

from __future__ import annotations

from interp.papers.microadder.starts import judged
from interp.papers.studies import Made, Settings, study
from interp.papers.studies.seed_sweeps import sweep_curves
from interp.papers.studies.sweeps import Arm, sweep_made, train_arms
from models.microadder_ladder import SHORT_PLACED_START, TAUGHT
from models.training.recipes import Teacher

SEEDS = 64
STUDENTS = {"53 parameters": "microadder-53", "57 parameters": "microadder-57"}
TEACHERS = {
    "no teacher": None,
    "taught by 57": TAUGHT.teacher,
    "taught by 3 by hand": Teacher("adder-3-by-hand", sharpness=1024.0),
}


def arms() -> list[Arm]:
    """Both students with each teacher and without one, all from the same seeds."""
    recipe = SHORT_PLACED_START
    return [
        Arm(f"{student}, {how}", name, recipe.replace(teacher=teacher), f"distillation/{name}-{number}")
        for student, name in STUDENTS.items()
        for number, (how, teacher) in enumerate(TEACHERS.items())
    ]


@study("microadder:distillation", "A teacher's logits for students of 57 and 53 parameters (section 7.3)")
def distillation(settings: Settings) -> Made | None:
    """Always 12,000 steps. Seeds that answer the whole test set are judged on all 10^20 pairs."""
    rows = train_arms(settings, arms(), settings.seeds or SEEDS)
    if not rows:
        return None
    sweep = sweep_curves(rows)
    said = [f"{sweep.grokked(row['label']).correct} of {len(row['seeds'])} of {row['label']}" for row in rows]
    text = (
        f"Seeds that answer all of AdderBoard: {'; '.join(said)}. A teacher's logits weigh 0.9 at temperature 4, and "
        "the right answers 0.1."
    )
    none, *others = TEACHERS
    pairs = [(f"{student}, {none}", f"{student}, {how}") for student in STUDENTS for how in others]
    verdicts = [verdict for row in rows for verdict in judged(row)]
    return sweep_made(settings, "distillation", "A teacher for a small student", rows, text, pairs, verdicts=verdicts)
