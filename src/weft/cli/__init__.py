"""The command line: argparse, and a command's module imported only when it is called."""
