"""A client that answers the tasks with the tools of ``interp mcp`` alone; no model of language is asked."""

from __future__ import annotations

from typing import Any

PROGRAMS = ("clock", "pizza")


async def answer(client: Any, asked: dict[str, str]) -> str | None:
    """The answer to a question, or None where the tools' evidence does not give one."""
    question = asked["question"]
    where = {"model": asked["model"], "task": asked["task"]}
    if question.startswith(("Is the model right", "Give a problem")):
        verdict = (await _called(client, "certify", **where))["data"]
        match verdict["status"], question.startswith("Is the model right"):
            case "certified", yes_or_no:
                return "yes" if yes_or_no else "none"
            case "refuted", True:
                return "no"
            case "refuted", False:
                return verdict["counterexample"]["problem"]
        return None
    if question.startswith("The model adds modulo"):
        said = (await _called(client, "ask", probe="group_program", **where))["sentence"]
        verdict = said.partition(": ")[2].split()[0]
        return verdict if verdict in PROGRAMS else "table" if verdict == "no" else None
    options = {"replacement": "zero", "control": False}
    asked_for = {"probe": "component_ablation", "n": 400, "options": options, "rows": 1_000, "detail": True}
    rows = (await _called(client, "ask", **asked_for, **where))["rows"]
    part = "L0N" if "neuron" in question else "L0H"
    whole = [row for row in rows if row["stratum"] == "all" and row["component"].startswith(part)]
    drops = {row["component"]: row["drop_low"] for row in whole}
    needed = [name for name, least in drops.items() if least > 0]
    return needed[0] if len(needed) == 1 else None


async def _called(client: Any, tool: str, **given: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, given)
    return (
        {"data": {"status": "refused"}, "rows": [], "sentence": ""}
        if found.is_error
        else found.structured_content["result"]
    )
