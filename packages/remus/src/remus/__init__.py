"""Remus: the authority that decides whether a workflow may act. Only its name is here until its issue."""
