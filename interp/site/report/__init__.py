"""How a model adds, on one page that opens without a network: the parts of its gallery page, in the order of a story.

write_report(["microadder-57", "adder-456"], Path("report.html"))

:mod:`interp.site.report.chapters` has the chapters; one that does not apply to a model is left out.
"""

from interp.site.report.write import write_report

__all__ = ["write_report"]
