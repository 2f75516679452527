"""The registered models, a module a family."""
