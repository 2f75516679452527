"""Position Coupling's figures from nothing: what must be trained for one, what does that cost, and what does it show?

The other papers' numbers are in :mod:`interp.papers.studies`.
"""
