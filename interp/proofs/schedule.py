"""Which method judges a subject, and what follows its run.

1. Of all methods that may judge it, the strongest claim is tried first, and of equal claims the cheapest. The next
   one is tried only where a method finds on the way that it cannot judge the model (CannotJudge).
2. An open proof over problems that are listed is followed by the next claim about these: with rounding, over the reals,
   by running them.
3. A proof over the reals of listed problems is followed by a run of them: rounding may make one wrong.
4. So is a refutation by a proof over listed problems, to count those that are wrong.
5. Where all problems can be run in half of the time, that half is kept for it after an open proof by the finite
   machine.
6. A wrong answer is looked for along gradients: before sets of strings are bounded; after a proof whose time is over;
   and where no method has a proof, before all problems are run, if there is time for that.
7. With an arithmetic asked for, only claims in it are made, and nothing follows but the search. "float" asks for what
   is run and not proved.
8. A model that nothing judges is refused, with the reasons of the methods that are meant for its task.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from interp.core.loading import load
from interp.proofs.attacks import search_method
from interp.proofs.listed import exhaustive
from interp.proofs.verdict.method import LAST_RESORT, METHODS, CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.subject import CannotJudge, Subject
from interp.proofs.verdict.time_limit import ENDED, EndedBy, minutes_left, time_limit
from interp.proofs.verdict.verdict import Verdict
from models.calls import doing
from models.errors import UserError
from models.transformer import model_name

#: The claims that answer an arithmetic that is asked for (None: none is), from the first to be tried on.
CLAIMS = {
    None: ("float32", "interval", "exhaustive"),
    "float32": ("float32", "exhaustive"),
    "interval": ("interval",),
    "float": ("float", "exhaustive"),
}
SEARCHED_AFTER = 4_000  # runs of the search for a wrong answer after the time is up
LEAST_MINUTES = 1e-9  # of a proof, whose time may be over before it begins


@dataclass(frozen=True)
class Attempt:
    """A method, one of its claims, and roughly how many seconds that takes."""

    method: Method
    claim: str
    cost: float


def attempts_at(subject: Subject, options: CertifyOptions) -> list[Attempt]:
    """What may be tried on a subject, in order; rule 1.

    Raises:
        CannotJudge: there is nothing, with the reasons of the methods that are meant for the task.
        UserError: nothing in the arithmetic, or about the part of an answer, that was asked for.
    """
    load("methods")
    wanted = CLAIMS[options.arithmetic]
    found, others, reasons, last = [], [], [], "there is no method"
    for method in METHODS.values():
        if not method.proves:
            continue
        if (reason := method.why_not(subject)) is not None:
            last = reason
            reasons += [reason] * method.meant_for(subject.task)
            continue
        claims = method.claims(subject) if options.targets == "all" or method.digits_alone else ()
        found += [Attempt(method, x, method.cost(subject, x)) for x in claims if x in wanted]
        others.append(method)
    if found:
        return sorted(found, key=lambda one: (one.cost == LAST_RESORT, wanted.index(one.claim), one.cost))
    if others and options.targets != "all":
        raise UserError(
            f"Digits are judged apart from EOS for adders, column by column; of {subject.task.name} every token is "
            "asked for."
        )
    if others:
        known = dict.fromkeys(claim for method in others for claim in method.claims(subject))
        raise UserError(
            f"{model_name(subject.model)} on {subject.task.name} is not judged in {options.arithmetic!r} arithmetic, "
            f"but in: {', '.join('by running all problems' if x == 'exhaustive' else x for x in known)}."
        )
    # The last of them takes any model and task of few problems.
    why = f"{'; '.join(reasons)}. Nor can all problems be run: {last}" if reasons else last
    raise CannotJudge(subject.model, why)


def judged(subject: Subject, options: CertifyOptions) -> Verdict:
    """The verdict on a subject by the rules of this module. Raises UserError if nothing judges it, and TimeUp."""
    reason = ""
    try:
        attempts = attempts_at(subject, options)
    except CannotJudge as error:
        attempts, reason = [], error.reason
    for number, attempt in enumerate(attempts):
        try:
            return _by(attempt, subject, options, attempts[number + 1 :])
        except CannotJudge as error:
            reason = reason or error.reason
    return _without_proof(subject, options, reason)


def _by(attempt: Attempt, subject: Subject, options: CertifyOptions, rest: list[Attempt]) -> Verdict:
    """The verdict that an attempt and what follows it come to."""
    follow, left = attempt.method.followed_by, minutes_left()
    if "search first" in follow and search_method.why_not(subject) is None:  # rule 6: at most a tenth of the time
        seconds = min(search_method.SECONDS, 60.0 if left is None else 6 * left)
        found = search_method.search(subject, "a wrong answer was found first", max(seconds, 1e-3))
        if found.status == "refuted":
            return verdict_by(search_method.METHOD.name, subject, found)
    half = None if left is None else left / 2
    runs = "run" in follow and options.arithmetic is None and exhaustive.can_run_all(subject, half)  # rule 5
    with time_limit(max(half, LEAST_MINUTES) if runs and half is not None else None):
        found = _run(attempt, subject, options)
    if "search" in follow and found.status == "undecided" and found.ended is EndedBy.TIME:  # rule 6
        wrong = search_method.first_wrong(subject, SEARCHED_AFTER)
        found = found if wrong is None else replace(found, status="refuted", counterexample=wrong)
    proof = verdict_by(attempt.method.name, subject, found)
    if options.arithmetic is not None or found.ended is EndedBy.INTERRUPT:  # rule 7
        return proof
    if runs and found.status == "undecided":
        with suppress(*ENDED):
            ran = exhaustive.run_all(subject, most=exhaustive.LARGEST_RUN)
            return verdict_by(exhaustive.METHOD.name, subject, ran)
    if "listed" in follow and found.ended is None:
        return _listed(attempt, proof, subject, options, rest)
    return proof


def _listed(
    attempt: Attempt, proof: Verdict, subject: Subject, options: CertifyOptions, rest: list[Attempt]
) -> Verdict:
    """What follows a proof over problems that are listed, which went through all of them; rules 2 to 4."""
    names = {exhaustive.METHOD.name} | ({attempt.method.name} if proof.status == "undecided" else set())
    following = next((each for each in rest if each.method.name in names), None)
    if following is None or (proof.status == "certified" and attempt.claim == "float32"):
        return proof
    try:
        found = _by(following, subject, options, rest[rest.index(following) + 1 :])
    except ENDED:
        if proof.status == "refuted":  # if it is not known how many there are
            return proof
        raise
    return proof if proof.status == "certified" and found.status != "refuted" else found


def _run(attempt: Attempt, subject: Subject, options: CertifyOptions) -> Outcome:
    """A method's run; a terminal says which it is and how much time there is."""
    left = minutes_left()
    doing(f"{attempt.method.name}{'' if left is None else f', at most {60 * left:.0f} s more'}")
    return attempt.method.run(subject, attempt.claim, options)


def _without_proof(subject: Subject, options: CertifyOptions, reason: str) -> Verdict:
    """What can be said where no method has a proof, for that ``reason``: rules 6 and 8."""
    if search_method.why_not(subject) is not None or options.targets != "all":
        raise CannotJudge(subject.model, reason)
    left = minutes_left()
    seconds = search_method.SECONDS if left is None else min(search_method.SECONDS, 15 * left)
    all_of_them = options.arithmetic != "interval" and exhaustive.can_run_all(subject, left)
    runs = search_method.RUNS // 10 if all_of_them else search_method.RUNS
    doing(f"{search_method.METHOD.name}{'' if left is None else f', at most {60 * left:.0f} s more'}")
    found = search_method.search(subject, reason, max(seconds, 1e-3), runs)
    if found.status == "refuted" or not all_of_them:
        return verdict_by(search_method.METHOD.name, subject, found)
    return verdict_by(exhaustive.METHOD.name, subject, exhaustive.run_all(subject, most=exhaustive.LARGEST_RUN))
