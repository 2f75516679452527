"""The parts of every HTML page: one style, figures, sections and the document around them.

Pages open from disk without a network. A page in one file contains plotly.js (:func:`document`); the pages of a site
share one copy (:mod:`interp.site.gallery`).
"""

from interp.site.pages.figure import figure_data, figure_html, fixed_figure_html
from interp.site.pages.html_document import document
from interp.site.pages.page_file import page_html, write_page
from interp.site.pages.page_sections import section_html, table_html, with_long_cells
from interp.site.pages.page_security import secured
from interp.site.pages.page_style import style, theme_script
from interp.site.pages.words import as_read

__all__ = [
    "as_read",
    "document",
    "figure_data",
    "figure_html",
    "fixed_figure_html",
    "page_html",
    "secured",
    "section_html",
    "style",
    "table_html",
    "theme_script",
    "with_long_cells",
    "write_page",
]
