"""`python -m heronpy.cli`: the same as `heron`."""

from heronpy.cli import main

if __name__ == "__main__":
    main()
