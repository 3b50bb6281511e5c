"""What all fine-tuning has in common: how long it lasts, and what it starts from."""

import dataclasses
import math
from typing import Any, ClassVar

from bert_jax import pretrained, tokenizers
from bert_jax.data import tfds_files
from bert_jax.data.splits import by_split
from bert_jax.pretrained import Checkpoint
from bert_jax.tasks.teaching import Lesson
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.vocabulary import refuse_more_ids


@dataclasses.dataclass
class FineTuning:
    """The fields that every such task's config has.

    Attributes:
      train, dev: files to train on, and to evaluate on; `tfds:NAME:SPLIT` is a dataset
        of TFDS.
      test: files to predict when the run is over, and to score if they have labels.
      tokenizer: vocab.txt or a directory; None takes that of `init_from`.
      max_length: of a row in tokens.
      epochs: passes over `train`; they say `num_steps`, `warmup_steps` (`warmup` of
        all steps), `eval_every` and `checkpoint_every`. 0 leaves these as they are.
      teacher: a model that was fine-tuned on the same labels, of the same vocabulary;
        what it predicts is learnt as well (Sanh et al., 2019, section 3).
      alpha_ce, temperature: the weight of its predictions, of which labels have the
        rest, and the temperature at which they are compared; numbers have none.
      init_from: the run's, which fills it in.
    """

    train: str | None = None
    dev: str | None = None
    test: tuple[str, ...] = ()
    tokenizer: str | None = None
    max_length: int = 128
    epochs: float = 3.0
    warmup: float = 0.1
    teacher: str | None = None
    alpha_ce: float = 0.5
    temperature: float = 2.0
    init_from: str | None = None

    # What `train` and `dev` may be, for the error where they are missing.
    files: ClassVar[str] = "a .tsv, .csv or .jsonl file"

    def count(self) -> int:
        """How many examples `train` has; an epoch sees so many."""
        raise NotImplementedError

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from its start and from the data."""
        self.check()
        task = dataclasses.replace(
            self,
            init_from=config.init_from,
            train=tfds_files.local(self.train),
            dev=tfds_files.local(self.dev),
            test=tuple(map(tfds_files.local, self.test)),
        )
        config = dataclasses.replace(config, task=task)
        if config.encoder is None:
            if not config.init_from:
                raise ValueError(
                    "there is neither init_from nor encoder; name a model to start "
                    "from with --config.init_from=DIR"
                )
            encoder = pretrained.load(config.init_from).head.encoder.config
            config = dataclasses.replace(config, encoder=encoder)
        if not self.epochs:
            return config
        # `validate` refuses a batch without rows.
        steps = int(task.count() * self.epochs / max(1, config.batch_size))
        # Rounded up, for the last epoch's evaluation is that of the last step.
        every = max(1, math.ceil(steps / self.epochs))
        optimizer = dataclasses.replace(
            config.optimizer, warmup_steps=int(steps * self.warmup)
        )
        return dataclasses.replace(
            config,
            num_steps=max(1, steps),
            optimizer=optimizer,
            eval_every=every,
            checkpoint_every=every,
        )

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("train", "dev"):
            if not getattr(self, field):
                raise ValueError(f"task.{field} names no file; give {self.files}")
        if not 0 <= self.epochs < 1e9 or not 0 <= self.warmup < 1:
            raise ValueError(
                f"task.epochs={self.epochs} must be at least 0, and "
                f"task.warmup={self.warmup} a share below 1; change them"
            )
        if not 0 <= self.alpha_ce <= 1 or not 0 < self.temperature < math.inf:
            raise ValueError(
                f"task.alpha_ce={self.alpha_ce} must be a share, and "
                f"task.temperature={self.temperature} positive; 0.5 and 2 are usual"
            )

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self.check()
        if not 3 < self.max_length <= encoder.longest:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.longest} positions of the encoder; change it"
            )

    def start(self, encoder: Any) -> tuple[Checkpoint | None, Tokenizer]:
        """What the run starts from, if anything, and the tokenizer."""
        start = pretrained.load(self.init_from) if self.init_from else None
        tokenizer = self.vocabulary(start)
        refuse_more_ids(tokenizer.vocab_size, encoder.vocab_size)
        return start, tokenizer

    def vocabulary(self, start: Checkpoint | None) -> Tokenizer:
        """The tokenizer: the task's own, or that of the start."""
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        if start is None or start.tokenizer is None:
            raise ValueError(
                f"init_from={self.init_from!r} gives no tokenizer; name one with "
                "task.tokenizer"
            )
        return start.tokenizer

    @property
    def lesson(self) -> Lesson | None:
        """What there is to learn from another model, if one is named."""
        if not self.teacher:
            return None
        return Lesson(self.teacher, self.alpha_ce, self.temperature)

    def splits(self) -> dict[str, str]:
        """Files by split: "train", "eval", and `test` by the names of its files."""
        return by_split(self.train, self.dev, self.test, "task.test")
