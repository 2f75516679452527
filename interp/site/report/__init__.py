"""One self-contained HTML page on trained adders; opens without a network."""

from interp.site.report.write import write_report

__all__ = ["write_report"]
