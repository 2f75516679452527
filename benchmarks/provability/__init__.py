"""How many ordinary small models get a verdict on all inputs, and what it costs.

python -m benchmarks.provability.train            # train what is missing of the models in ordinary_models.py
python -m benchmarks.provability                  # certify each in a process of its own; prints a table
python -m benchmarks.provability add-5-ln-gelu-0 --minutes 5
"""
