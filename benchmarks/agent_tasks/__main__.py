"""``python -m benchmarks.agent_tasks write FOLDER`` and ``score ANSWERS.json``."""

import json
import sys
from pathlib import Path

from benchmarks.agent_tasks import questions, score, tasks
from benchmarks.agent_tasks.planted import write

match sys.argv[1:]:
    case ["write", to]:
        folder = Path(to)
        folder.mkdir(parents=True, exist_ok=True)
        asked = questions({task["id"]: write(task, folder) for task in tasks()})
        (folder / "questions.json").write_text(json.dumps(asked, indent=1))
        print(f"wrote {len(asked)} models and questions.json to {folder}")
    case ["score", answers]:
        for kind, counts in score(json.loads(Path(answers).read_text())).items():
            print(f"{kind:<12}", *(f"{n:>3} {name}" for name, n in counts.items()))
    case _:
        sys.exit("python -m benchmarks.agent_tasks write FOLDER | score ANSWERS.json")
