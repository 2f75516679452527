"""Pictures of :mod:`interp.two_digit`'s results."""
