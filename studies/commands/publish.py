"""The command ``python -m studies publish``."""

from __future__ import annotations

from pathlib import Path

from interp.cli.shared_options import RunFolders, one_thread


def publish(runs: RunFolders, out: Path | None = None, overwrite: bool = False) -> None:
    """Make a zoo entry of finished runs by the rule of their paper: sequences of many lengths, and two-digit adders.

    Args:
        runs: Run folders.
        out: The entry's folder; the package's zoo by default.
        overwrite: Replace an entry that is there.
    """
    from models.registry import build
    from models.training.publish import publish
    from models.training.run_folder import RunFolder
    from studies.zoo.reports import report_of

    one_thread()
    task = build(RunFolder(Path(runs[0])).config()["model"]).task
    folder, result = publish(list(runs), out, overwrite, report=report_of(task))
    print(f"{folder}\n{result}")
