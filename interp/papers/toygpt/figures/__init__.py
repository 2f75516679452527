"""Pictures of :mod:`interp.papers.toygpt`'s results."""
