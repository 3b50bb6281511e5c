"""Events for TensorBoard: scalars of two runs, hyperparameters, pictures and texts.

`tensorboard/train` and `tensorboard/eval` are two runs with the same tags, so that one
chart has both.
"""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax import files, metrics
from bert_jax.data.optional import require

event_pb2 = require("tensorboard.compat.proto.event_pb2", "training")
summary_pb2 = require("tensorboard.compat.proto.summary_pb2", "training")
tensor_pb2 = require("tensorboard.compat.proto.tensor_pb2", "training")
tensor_shape_pb2 = require("tensorboard.compat.proto.tensor_shape_pb2", "training")
types_pb2 = require("tensorboard.compat.proto.types_pb2", "training")
hparams_pb2 = require("tensorboard.plugins.hparams.plugin_data_pb2", "training")
text_pb2 = require("tensorboard.plugins.text.plugin_data_pb2", "training")
# Not EventFileWriter: that one imports TensorFlow where it is installed.
record_writer = require("tensorboard.summary.writer.record_writer", "training")

# The run of each split's values, in the directory `tensorboard`.
SPLITS = ("train", "eval")


class Events:
    """A run of TensorBoard: one new file of events in its directory."""

    def __init__(self, directory: Path):
        self._directory = files.make_directory(directory)
        # TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{time.time_ns():020d}.{os.getpid()}"
        self._file = record_writer.RecordWriter((directory / name).open("wb"))
        self._write(file_version="brain.Event:2")

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One value a name; scores are from 0 to 1, see `metrics.as_shares`."""
        shares = metrics.as_shares(values)
        self._add(step, *({"tag": k, "simple_value": x} for k, x in shares.items()))

    def forget(self, step: int) -> None:
        """Makes TensorBoard forget what was written from a step on."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=step, session_log=start)

    def hparams(self, values: Mapping[str, Any]) -> None:
        """The hyperparameters of the run, for the tab HPARAMS."""
        start = hparams_pb2.SessionStartInfo(start_time_secs=time.time())
        for name, value in values.items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[name].number_value = value
            elif value is not None:
                start.hparams[name].string_value = str(value)
        content = hparams_pb2.HParamsPluginData(version=0, session_start_info=start)
        empty = tensor_shape_pb2.TensorShapeProto(dim=[{"size": 0}])
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_shape=empty)
        metadata = _metadata("hparams", content)
        tag = "_hparams_/session_start_info"
        self._add(0, {"tag": tag, "metadata": metadata, "tensor": tensor})

    def text(self, step: int, tag: str, text: str) -> None:
        """A text, shown as it is and not as Markdown."""
        shown = "\n".join(f"    {line}" for line in text.splitlines())
        content = text_pb2.TextPluginData(version=0)
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            string_val=[shown.encode()],
            tensor_shape=tensor_shape_pb2.TensorShapeProto(),
        )
        metadata = _metadata("text", content)
        self._add(step, {"tag": tag, "metadata": metadata, "tensor": tensor})

    def picture(self, step: int, tag: str, png: bytes) -> None:
        """A picture, from the content of a PNG file."""
        # Width and height are in the first chunk, which has a fixed place.
        width, height = struct.unpack(">II", png[16:24])
        image = {"width": width, "height": height, "colorspace": 4}
        self._add(step, {"tag": tag, "image": image | {"encoded_image_string": png}})

    def _add(self, step: int, *values: Mapping[str, Any]) -> None:
        entries = [summary_pb2.Summary.Value(**value) for value in values]
        self._write(step=step, summary=summary_pb2.Summary(value=entries))

    def _write(self, **fields: Any) -> None:
        event = event_pb2.Event(wall_time=time.time(), **fields)
        with files.write_errors(self._directory):
            self._file.write(event.SerializeToString())
            self._file.flush()


def _metadata(plugin: str, content: Any) -> Any:
    """The metadata of a value that one of TensorBoard's plugins shows."""
    data = summary_pb2.SummaryMetadata.PluginData(
        plugin_name=plugin, content=content.SerializeToString()
    )
    return summary_pb2.SummaryMetadata(
        plugin_data=data, data_class=summary_pb2.DATA_CLASS_TENSOR
    )


def write_results(
    workdir: Path, step: int, pictures: Mapping[str, Path], texts: Mapping[str, str]
) -> None:
    """Adds to the run `eval` of a work directory what is known at its end.

    Pictures that do not exist and texts that are empty are left out.
    """
    with Events(workdir / "tensorboard/eval") as events:
        for tag, path in pictures.items():
            if path.exists():
                events.picture(step, tag, path.read_bytes())
        for tag, text in texts.items():
            if text.strip():
                events.text(step, tag, text)
