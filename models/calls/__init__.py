"""Public calls: checked arguments, and a known state of the process while they run."""
