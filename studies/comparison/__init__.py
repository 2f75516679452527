"""The same questions asked of several papers' models."""
