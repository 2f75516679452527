"""Pictures of :mod:`interp.coupled`'s results."""
