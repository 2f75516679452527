"""What a certified adder does: its program, its curves and the ranges of its neurons."""
