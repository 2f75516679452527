"""Trained models beside the hand-built Position Coupling construction."""
