"""Figures of :mod:`interp.papers.toygpt`'s results."""
