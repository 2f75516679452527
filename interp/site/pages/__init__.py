"""What every HTML page is made of, whoever writes it: one style, figures, sections, a document around them.

Pages open from disk without a network. A page of one file has plotly.js inside (:func:`document`); the pages of a site
share one copy beside them (:mod:`interp.site.gallery`).
"""

from interp.site.pages.document import document
from interp.site.pages.figure import figure_data, figure_html, fixed_figure_html
from interp.site.pages.sections import Section, table_html
from interp.site.pages.style import style

__all__ = ["Section", "document", "figure_data", "figure_html", "fixed_figure_html", "style", "table_html"]
