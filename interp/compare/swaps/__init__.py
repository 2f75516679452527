"""What survives when parts of one model replace another's."""
