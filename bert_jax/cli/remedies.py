"""Remedies of errors and warnings, as a shell has them.

Messages name Python's arguments, for most of them are raised there. `in_shell` writes
the flags of a command in their place.
"""

import re

# What messages say -> what a user of the commands types.
REMEDIES = {
    r'train one with bert_jax\.finetune\(model, "(\w+)", train=\.\.\., dev=\.\.\.\)': (
        r"train one: bert-jax finetune \1 --model DIR --train FILE --dev FILE"
    ),
    r"set model\.max_length = (\d+)": r"set --max-length \1",
    r"load without strict": "remove --strict",
}


def in_shell(message: str) -> str:
    """A message with the flags of the commands in place of Python's arguments.

    >>> in_shell("shorten them, or load without strict")
    'shorten them, or remove --strict'
    """
    for python, shell in REMEDIES.items():
        message = re.sub(python, shell, message)
    return message
