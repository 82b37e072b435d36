"""Which budget is worth it on this machine, or none: predicted from a few runs, then judged by running it.

trace, trees, acceptance   one traced run → the accept length of every tree and of the chain
rounds, cost               passes of a few widths → what a round costs at any width
experts                    how many experts a verify of N tokens reads
predict, recommend         tokens per second of every arm; the best, if it beats the chain by more than is uncertain
plan, measure, reading     what is run, in which order, on the host; what a run's files say
found, answer, checks      the choice, `ddtool.tune/1`, and how predictions stood
overlay                    the answer as a profile
"""
