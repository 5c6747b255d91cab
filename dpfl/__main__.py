"""`python -m dpfl` is the command `dpfl`."""

from dpfl.cli import main

if __name__ == '__main__':
    main.main()
