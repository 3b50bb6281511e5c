"""`bert-jax`, and `python -m bert_jax`."""

import signal

# Until the command begins: Python would print at which import Ctrl-C came.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from bert_jax.cli import main

if __name__ == "__main__":
    main()
