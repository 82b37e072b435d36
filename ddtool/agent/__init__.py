"""The program that runs on the host: Python 3.8 or later, standard library only, shipped as one zipapp."""
