"""`python -m bert_jax COMMAND` is `bert-jax COMMAND`."""

from bert_jax.cli import main

main()
