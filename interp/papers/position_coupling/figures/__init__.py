"""Figures of :mod:`interp.papers.position_coupling`'s results."""
