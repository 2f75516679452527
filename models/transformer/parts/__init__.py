"""The parts of the one transformer: norms, positions, attention and MLPs, each a named switch of the config."""
