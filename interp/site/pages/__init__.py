"""The parts of every HTML page: one style, figures, sections and the document around them.

Pages open from disk without a network. A page in one file contains plotly.js (:func:`document`); pages that share one
copy have their figures as data (:func:`figure_data`), which :func:`figure_script` draws.
"""

from interp.site.pages.figure import figure_data, figure_html, figure_script, fixed_figure_html
from interp.site.pages.html_document import document, secured, style, theme_script
from interp.site.pages.page_sections import page_html, section_html, table_html, write_page
from interp.site.pages.words import as_read

__all__ = [
    "as_read",
    "document",
    "figure_data",
    "figure_html",
    "figure_script",
    "fixed_figure_html",
    "page_html",
    "secured",
    "section_html",
    "style",
    "table_html",
    "theme_script",
    "write_page",
]
