"""`python -m segue` is the command line; torchrun starts it this way."""

from segue.cli import main

if __name__ == "__main__":
    main()
