"""Errors meant for the person at the terminal."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right. The console prints its text as one line, without a trace, and exits with 2.

    The text says what is wrong and what to do.
    """
