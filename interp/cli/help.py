"""The help text of ``interp``, wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping

#: What the commands do, by example; :func:`help_text` has a line for a command without one too.
EXAMPLES = {
    "interp list": "models, trained or not",
    "interp train microadder-57 --seeds 64": "train a model, or resume its run",
    "interp train microadder-57 --seeds 4096 --cluster auto": "on as many machines as there are",
    "interp train microadder-57 --certify": "until a checkpoint is proved right on all 10^20 pairs",
    "interp publish runs/microadder-57": "make a zoo entry of finished runs",
    "interp solve microadder-57 57+48": "the model's own answer",
    "interp score microadder-57": "score on the task's test set, with its interval, by carry-chain length",
    "interp certify microadder-57": "prove it right on all 10^20 pairs, or find one that is wrong",
    "interp certify toygpt-learned-pre": "run all 10,000 pairs through it: domains of up to 2^20 problems",
    "interp ask microadder-57": "what can be asked of it; with a probe's name, the answer",
    "interp attack position-coupling-2l2h-small": "search along gradients for a problem that a model answers wrong",
    "interp compare microadder-57 adder-456": "compare models: part by part, or question by question",
    "interp report": "report.html on the zoo's ten-digit adders",
    "interp explore microadder-57 adder-456": "explore.html: any problem, any part removed or patched",
    "interp fetch-data": "download the text that AddLM is trained on, and check it",
    "interp mcp": "the same questions as tools, for programs that speak the Model Context Protocol",
}
#: What commands on your own models, tasks and files take, before or after their other words.
OWN_FLAGS = {
    "--task": "TEXT or FILE.py:NAME, the task of a model that does not say its own: '{a:2}+{b:2}={s:3}; a + b'",
    "--from": "FILE.py, a file of yours that registers models, tasks, probes or methods; it is run first",
    "--trust": "run a model that is a program, under bubblewrap; --trust=COMMAND under a command of yours; --trust "
    "unconfined as it is, with all that you may do",
}
STATUS = "Exit status: 0 done, 2 bad input (one sentence on stderr), 130 interrupted"
OWN_STATUS = (
    "; of certify, 0 certified, 1 refuted, 3 "
    "undecided, 4 samples without a proof, 5 proved for a rule that was only tried to be the task's answer; of attack, "
    "0 no failure found, 1 one found."
)
WIDEST = 120  # most characters of a line; longer lines are hard to read
_SIDE_BY_SIDE = 110  # from this width on, command and explanation share a line


def columns() -> int:
    """Number of characters of a line of prose in this terminal."""
    return min(WIDEST, shutil.get_terminal_size().columns)


def filled(text: str, indent: str = "", after: str | None = None, width: int | None = None) -> str:
    """A paragraph wrapped to the terminal, the first line indented by ``indent`` and the others by ``after`` (default
    the same); names are not broken, at hyphens or elsewhere."""
    return textwrap.fill(
        text,
        columns() if width is None else width,
        initial_indent=indent,
        subsequent_indent=indent if after is None else after,
        break_long_words=False,
        break_on_hyphens=False,
    )


def help_text(
    commands: Iterable[str],
    examples: Mapping[str, str] = EXAMPLES,
    program: str = "interp",
    own: bool = True,
    width: int | None = None,
) -> str:
    """The commands by example, each with its explanation next to it, or below it in a narrow terminal; with ``own``,
    also what those of ``interp`` take and say."""
    width = columns() if width is None else width
    named = {example.removeprefix(program).split()[0] for example in examples}
    shown = dict(examples) | {f"{program} {name}": "see its --help" for name in commands if name not in named}
    widest = max(map(len, shown))
    lines = []
    for example, does in shown.items():
        if width >= _SIDE_BY_SIDE:
            lines.append(f"    {example:<{widest}}   {does}")
        else:
            lines += [f"  {example}", filled(does, " " * 6, width=width)]
    if own:
        lines += [""] + [filled(f"{flag}: {does}", "  ", " " * 6, width=width) for flag, does in OWN_FLAGS.items()]
    usage = f"usage: {program} COMMAND [ARGUMENTS]    ({program} COMMAND --help lists them; {program} --version)"
    return "\n\n".join((usage, "\n".join(lines), filled(f"{STATUS}{OWN_STATUS if own else '.'}", width=width)))


def own_flags_text(flags: Iterable[str]) -> str:
    """A paragraph on those of :data:`OWN_FLAGS` that a command takes; empty if it takes none."""
    return "\n".join(filled(f"{flag}: {OWN_FLAGS[flag]}", "  ", " " * 6) for flag in flags)
