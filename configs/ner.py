r"""A label for each word: entities, parts of speech.

    python train.py --config=configs/ner.py --config.task.train=train.conll \
        --config.task.dev=dev.conll --config.init_from=DIR --workdir=runs/ner

Files have one word a line with its label in the last column, and an empty line after
each sentence, or are .conllu or .jsonl; `task.token` and `task.label` name other
columns.

The recipe of the BERT paper (Devlin et al., 2018, section 5.3 and appendix A.3) with a
cased model: 2, 3 or 4 epochs, batch 16 or 32, a learning rate of 5e-5, 3e-5 or 2e-5
chosen on dev, a tenth of warm-up; no CRF. Its F1 on CoNLL-2003 (table 7, dev and test,
5 seeds), where each sentence is read with as much of its document as fits into a row:

    BERT-base 96.4 92.4   BERT-large 96.6 92.8

    --config.task.context=document --config.task.max_length=512

reads sentences in this way. With single sentences, people report less for BERT-base on
test: 91.6 (kamalkraj/BERT-NER#35), against 92.0 and 92.4 with documents
(kermitt2/delft#21).

On WNUT-17, dev and test (README of the token classification examples of Hugging Face
transformers; 3 epochs, batch 32, sentences of 128 tokens, one seed):

    BERT-large, cased 58.8 47.4
"""

from dataclasses import replace

from bert_jax.tasks import TaggingConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return replace(glue.get_config(), task=TaggingConfig())
