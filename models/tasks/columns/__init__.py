"""What each column of an addition or subtraction does, as variables and as algorithms."""
