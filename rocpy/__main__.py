# SPDX-License-Identifier: MIT
"""`python -m rocpy`: the command line, where the script `rocpy` is not on the path."""

from rocpy.cli import main

if __name__ == "__main__":
    main()
