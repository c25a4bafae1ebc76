"""`python -m romulus.cli`: the command line without its script on PATH."""

from . import main

main()
