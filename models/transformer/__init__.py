"""The one hooked forward pass, its configuration and its parts."""
