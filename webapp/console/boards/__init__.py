"""Boards: saved views beside each other, and links that show a board to people without an account."""
