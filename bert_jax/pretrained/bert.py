"""The tables of BERT, RoBERTa, DistilBERT, ALBERT and ELECTRA."""

from bert_jax.models import heads
from bert_jax.pretrained.family import Family, Head

EMBEDDINGS = {
    "embeddings/word": "embeddings.word_embeddings.weight",
    "embeddings/position": "embeddings.position_embeddings.weight",
    "embeddings/token_type": "embeddings.token_type_embeddings.weight",
    "embeddings/norm": "embeddings.LayerNorm",
}

# BERT's encoder, which RoBERTa and ELECTRA share.
ENCODER = EMBEDDINGS | {
    "layer_#/attention/query": "encoder.layer.{layer}.attention.self.query",
    "layer_#/attention/key": "encoder.layer.{layer}.attention.self.key",
    "layer_#/attention/value": "encoder.layer.{layer}.attention.self.value",
    "layer_#/attention/out": "encoder.layer.{layer}.attention.output.dense",
    "layer_#/attention_norm": "encoder.layer.{layer}.attention.output.LayerNorm",
    "layer_#/mlp/up": "encoder.layer.{layer}.intermediate.dense",
    "layer_#/mlp/down": "encoder.layer.{layer}.output.dense",
    "layer_#/mlp_norm": "encoder.layer.{layer}.output.LayerNorm",
}

# Parts of heads that most families publish alike.
TOKENS = {"classifier": "classifier"}
SPANS = {"span": "qa_outputs"}
RATE = {"rate": "classifier_dropout"}
PROBLEM = {"problem_type": "problem_type"}

# Special tokens of the tokenizer, whose ids transformers otherwise takes from its own
# published models.
ENDS = {"bos_token_id": "cls_id", "eos_token_id": "sep_id"}

BERT_POOLER = {"pooler": "bert.pooler.dense"}
BERT_MLM = {
    "mlm/transform": "cls.predictions.transform.dense",
    "mlm/norm": "cls.predictions.transform.LayerNorm",
    "mlm/bias": "cls.predictions.bias",
    "mlm/decoder": "cls.predictions.decoder",
}

BERT = Family(
    prefix="bert.",
    pairs="next",
    encoder=ENCODER,
    heads={
        "BertModel": Head(heads.Features, BERT_POOLER),
        "BertForPreTraining": Head(
            heads.Pretraining,
            BERT_POOLER | BERT_MLM | {"pair": "cls.seq_relationship"},
        ),
        "BertForMaskedLM": Head(heads.MaskedLM, BERT_MLM),
        "BertForSequenceClassification": Head(
            heads.SequenceClassifier,
            BERT_POOLER | {"classifier": "classifier"},
            fields=RATE | PROBLEM,
        ),
        "BertForTokenClassification": Head(heads.TokenClassifier, TOKENS, fields=RATE),
        "BertForQuestionAnswering": Head(heads.SpanClassifier, SPANS),
        "BertForMultipleChoice": Head(
            heads.MultipleChoice,
            BERT_POOLER | {"classifier": "classifier"},
            fields=RATE,
        ),
    },
    read_as={
        # A classifier of pairs computes the same.
        "BertForNextSentencePrediction": Head(
            heads.SequenceClassifier,
            BERT_POOLER | {"classifier": "cls.seq_relationship"},
            defaults={"rate": 0.0},
        ),
    },
)

# A classifier of two dense layers on the first token, without the pooler.
DENSE_THEN_OUT = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}

ROBERTA = Family(
    prefix="roberta.",
    encoder=ENCODER,
    heads={
        "RobertaModel": Head(heads.Features, {"pooler": "roberta.pooler.dense"}),
        "RobertaForMaskedLM": Head(
            heads.MaskedLM,
            {
                "mlm/transform": "lm_head.dense",
                "mlm/norm": "lm_head.layer_norm",
                "mlm/bias": "lm_head.bias",
                "mlm/decoder": "lm_head.decoder",
            },
            defaults={"hidden_act": "gelu"},
        ),
        "RobertaForSequenceClassification": Head(
            heads.SequenceClassifier,
            DENSE_THEN_OUT,
            defaults={"drops_input": True},
            fields=RATE | PROBLEM,
        ),
        "RobertaForTokenClassification": Head(
            heads.TokenClassifier, TOKENS, fields=RATE
        ),
        "RobertaForQuestionAnswering": Head(heads.SpanClassifier, SPANS),
        "RobertaForMultipleChoice": Head(
            heads.MultipleChoice,
            {"pooler": "roberta.pooler.dense", "classifier": "classifier"},
        ),
    },
    defaults={"vocab_size": 50265, "pad_token_id": 1},
    special_ids=ENDS,
    derived={"position_offset": lambda config: config.pad_token_id + 1},
)

DISTILBERT_CLASSIFIER = {"pooler": "pre_classifier", "classifier": "classifier"}

DISTILBERT = Family(
    prefix="distilbert.",
    encoder={
        "embeddings/word": EMBEDDINGS["embeddings/word"],
        "embeddings/position": EMBEDDINGS["embeddings/position"],
        "embeddings/norm": EMBEDDINGS["embeddings/norm"],
        "layer_#/attention/query": "transformer.layer.{layer}.attention.q_lin",
        "layer_#/attention/key": "transformer.layer.{layer}.attention.k_lin",
        "layer_#/attention/value": "transformer.layer.{layer}.attention.v_lin",
        "layer_#/attention/out": "transformer.layer.{layer}.attention.out_lin",
        "layer_#/attention_norm": "transformer.layer.{layer}.sa_layer_norm",
        "layer_#/mlp/up": "transformer.layer.{layer}.ffn.lin1",
        "layer_#/mlp/down": "transformer.layer.{layer}.ffn.lin2",
        "layer_#/mlp_norm": "transformer.layer.{layer}.output_layer_norm",
    },
    heads={
        "DistilBertModel": Head(heads.Features),
        "DistilBertForMaskedLM": Head(
            heads.MaskedLM,
            {
                "mlm/transform": "vocab_transform",
                "mlm/norm": "vocab_layer_norm",
                "mlm/bias": "vocab_projector.bias",
                "mlm/decoder": "vocab_projector",
            },
        ),
        "DistilBertForSequenceClassification": Head(
            heads.SequenceClassifier,
            DISTILBERT_CLASSIFIER,
            defaults={"hidden_act": "relu", "rate": 0.2},
            fields={"rate": "seq_classif_dropout"} | PROBLEM,
        ),
        "DistilBertForTokenClassification": Head(heads.TokenClassifier, TOKENS),
        "DistilBertForQuestionAnswering": Head(
            heads.SpanClassifier,
            SPANS,
            defaults={"rate": 0.1},
            fields={"rate": "qa_dropout"},
        ),
        "DistilBertForMultipleChoice": Head(
            heads.MultipleChoice,
            DISTILBERT_CLASSIFIER,
            defaults={"hidden_act": "relu", "rate": 0.2},
            fields={"rate": "seq_classif_dropout"},
        ),
    },
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
    },
    defaults={"num_hidden_layers": 6},
    fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
)

_ALBERT_LAYER = "encoder.albert_layer_groups.{group}.albert_layers.{inner}"
ALBERT_POOLER = {"pooler": "albert.pooler"}
ALBERT_MLM = {
    "mlm/transform": "predictions.dense",
    "mlm/norm": "predictions.LayerNorm",
    "mlm/bias": "predictions.bias",
    "mlm/decoder": "predictions.decoder",
}
ALBERT_RATE = {"rate": "classifier_dropout_prob"}

ALBERT = Family(
    prefix="albert.",
    pairs="order",
    encoder=EMBEDDINGS
    | {
        "embeddings/project": "encoder.embedding_hidden_mapping_in",
        "layer_#/attention/query": f"{_ALBERT_LAYER}.attention.query",
        "layer_#/attention/key": f"{_ALBERT_LAYER}.attention.key",
        "layer_#/attention/value": f"{_ALBERT_LAYER}.attention.value",
        "layer_#/attention/out": f"{_ALBERT_LAYER}.attention.dense",
        "layer_#/attention_norm": f"{_ALBERT_LAYER}.attention.LayerNorm",
        "layer_#/mlp/up": f"{_ALBERT_LAYER}.ffn",
        "layer_#/mlp/down": f"{_ALBERT_LAYER}.ffn_output",
        "layer_#/mlp_norm": f"{_ALBERT_LAYER}.full_layer_layer_norm",
    },
    heads={
        "AlbertModel": Head(heads.Features, ALBERT_POOLER),
        "AlbertForPreTraining": Head(
            heads.Pretraining,
            ALBERT_POOLER | ALBERT_MLM | {"pair": "sop_classifier.classifier"},
        ),
        "AlbertForMaskedLM": Head(heads.MaskedLM, ALBERT_MLM),
        "AlbertForSequenceClassification": Head(
            heads.SequenceClassifier,
            ALBERT_POOLER | {"classifier": "classifier"},
            defaults={"rate": 0.1},
            fields=ALBERT_RATE | PROBLEM,
        ),
        "AlbertForTokenClassification": Head(
            heads.TokenClassifier,
            TOKENS,
            defaults={"rate": 0.1},
            fields=ALBERT_RATE,
        ),
        "AlbertForQuestionAnswering": Head(heads.SpanClassifier, SPANS),
        "AlbertForMultipleChoice": Head(
            heads.MultipleChoice,
            ALBERT_POOLER | {"classifier": "classifier"},
            defaults={"rate": 0.1},
            fields=ALBERT_RATE,
        ),
    },
    special_ids=ENDS,
    defaults={
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "num_hidden_groups": 1,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
)

ELECTRA = Family(
    prefix="electra.",
    encoder=ENCODER | {"embeddings/project": "embeddings_project"},
    heads={
        "ElectraModel": Head(heads.Features),
        "ElectraForPreTraining": Head(
            heads.ReplacedTokenDetection,
            {
                "transform": "discriminator_predictions.dense",
                "replaced": "discriminator_predictions.dense_prediction",
            },
        ),
        "ElectraForMaskedLM": Head(
            heads.MaskedLM,
            {
                "mlm/transform": "generator_predictions.dense",
                "mlm/norm": "generator_predictions.LayerNorm",
                "mlm/bias": "generator_lm_head.bias",
                "mlm/decoder": "generator_lm_head",
            },
            defaults={"hidden_act": "gelu"},
        ),
        "ElectraForSequenceClassification": Head(
            heads.SequenceClassifier,
            DENSE_THEN_OUT,
            defaults={"hidden_act": "gelu", "drops_input": True},
            fields=RATE | PROBLEM,
        ),
        "ElectraForTokenClassification": Head(
            heads.TokenClassifier, TOKENS, fields=RATE
        ),
        "ElectraForQuestionAnswering": Head(heads.SpanClassifier, SPANS),
        "ElectraForMultipleChoice": Head(
            heads.MultipleChoice,
            {"pooler": "sequence_summary.summary", "classifier": "classifier"},
            defaults={"hidden_act": "gelu", "rate": 0.1},
            fields={
                "hidden_act": "summary_activation",
                "rate": "summary_last_dropout",
            },
        ),
    },
    defaults={
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    # Without a projection where the sizes are equal (base and large).
    derived={
        "embedding_size": lambda config: (
            None
            if config.embedding_size == config.hidden_size
            else config.embedding_size
        )
    },
    required={"summary_type": "first"},
)
