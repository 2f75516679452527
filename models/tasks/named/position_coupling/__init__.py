"""The three tasks of Position Coupling, with coupled position ids."""
