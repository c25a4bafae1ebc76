"""What SQLite files of each schema are like in the middle of a worker's life, and what that worker does to its file (RB-58).

The files of schemas 1 to 3 were made by the code of then, which was never released: there is no worker of theirs to go on.
"""
