"""Models beside each other: two of one format matched part by part, models of any formats question by question.

interp.compare(a, b)              :mod:`interp.comparison.compare` says what is compared, and against which nulls
interp.compare_models([a, b, c])  :mod:`interp.comparison.across`; its questions: :mod:`interp.comparison.questions`
"""
