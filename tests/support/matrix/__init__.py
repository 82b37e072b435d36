"""The fault matrix: every changing verb × everything that can happen to a host or a link in the middle of it.

    stages      hosts with the mini service: deployed, made by hand, or to be installed
    verbs       commands of ddtool, the state each begins in, and the way back to it
    injections  what happens, while the transaction's executor stands at a chosen act, or all the time
    state       what a host is: its managed files, and what must never be lost
    cells       one verb and one fault, at several points: inject, settle, check
    table       cells as a table

`tests/host/fault_matrix.py` runs all of it.
"""
