"""``python -m aucmax`` is ``aucmax``."""

from aucmax.cli import main

if __name__ == "__main__":
    main()
