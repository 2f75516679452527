"""Finite machines that give a task's answers, digit by digit: minimal automata over positions."""
