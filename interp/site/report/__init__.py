"""A report on how a model adds: a story in chapters, on one page that opens without a network.

write_report(["microadder-57", "adder-456"], Path("report.html"))

The chapters are in :mod:`interp.site.chapters`; those that do not apply to a model are left out.
"""

from interp.site.report.report_file import write_report

__all__ = ["write_report"]
