"""`python -m bert_jax VERB` is `bert-jax VERB`."""

from bert_jax.cli import main

main()
