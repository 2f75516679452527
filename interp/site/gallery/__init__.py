"""A static site about everything that is stored: models, certificates, the papers' numbers, comparisons.

    interp gallery --out gallery/        builds the site, or brings it up to date
    site.build(Path("gallery"))          the same from Python

The site opens from disk. Its pages share one style sheet, one script and one plotly.js. A page is made again only if
something that it shows has changed.
"""
