"""A ten-digit adder's circuit: does attention follow the problem, what does it write, and which way comes the carry?"""
