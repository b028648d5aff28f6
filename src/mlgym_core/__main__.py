"""``python -m mlgym_core`` is ``mlgym``."""

from mlgym_core.cli import main

if __name__ == "__main__":
    main()
