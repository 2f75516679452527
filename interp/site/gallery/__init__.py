"""A static site on everything that is stored: models, certificates, the papers' numbers, comparisons.

    interp gallery --out gallery/        builds it, or brings it up to date
    site.build(Path("gallery"))          the same from Python

It opens from disk. The pages share one style sheet, one script and one plotly.js next to them; a page is made again
only if something that it shows has changed.
"""
