"""Report on a compiled training step: a dict for JSON, and a table of it."""

import collections
import math
from typing import Any, NamedTuple

import jax

from benchmarks import hlo
from benchmarks.roofline import Chip, Work, estimate
from bert_jax.sizes import format_bytes
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.memory import on_each_device
from bert_jax.training.program import Program
from bert_jax.training.task import Batch


class Rows(NamedTuple):
    """The size of a batch.

    Attributes:
      count: rows.
      texts: in a row that is trained on; 1 in pre-training.
      length: of a row, or of each of its texts, in tokens.
      predictions: over the vocabulary, of a row.
    """

    count: int
    texts: int
    length: int
    predictions: int


def rows_of(config: TrainConfig, batch: Batch) -> Rows:
    """The size of a batch that a config makes."""
    count, *texts, length = batch["input_ids"].shape
    predictions = 0
    if isinstance(config.task, PretrainingConfig):
        predictions = config.task.masking.predictions(length)
    return Rows(count, math.prod(texts), length, predictions)


def describe(
    config: TrainConfig,
    topology: str,
    chip: Chip,
    program: Program,
    rows: Rows,
    compiled: Any,
) -> dict[str, Any]:
    """All that is known of a program that fits."""
    text = compiled.as_text()
    exchanges = hlo.collectives(text)
    memory = compiled.memory_analysis()
    useful = flops(program, rows)
    minimum = least_bytes(config, program, rows)
    # Gathered vectors grow with the slice: then its own estimate is the only one.
    tori = {program.mesh.size: torus_of(topology)} if rows.texts > 1 else chip.tori
    sent = sum(one.sent for one in exchanges)
    return {
        **head(config, topology, rows),
        "fits": True,
        "attention": program.model.encoder.config.attention,
        "memory": {
            "limit": chip.memory,
            "total": memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes
            + memory.temp_size_in_bytes
            + memory.generated_code_size_in_bytes,
            "parameters": on_each_device(program.state.params),
            "optimizer": on_each_device(program.state.opt_state),
            "temporary": memory.temp_size_in_bytes,
            "code": memory.generated_code_size_in_bytes,
        },
        "flops": {"model": useful, "hardware": compiled.cost_analysis()["flops"]},
        "memory_traffic": (traffic := hlo.hbm_bytes(text)),
        "memory_seconds": traffic / chip.memory_rate,
        "collectives": by_kind(config, exchanges),
        "sent": sent,
        "least": minimum,
        "ratio": sent / minimum if minimum else 1.0,
        "gathered_activations": foreign(program, exchanges),
        "scores_in_memory": scores(config, rows, text),
        "largest": largest(text),
        "estimate": scaling(config, chip, tori, program, useful, exchanges),
    }


def torus_of(topology: str) -> tuple[int, ...]:
    """The lengths of a slice's axes."""
    return tuple(int(n) for n in topology.partition(":")[2].split("x"))


def head(config: TrainConfig, topology: str, rows: Rows) -> dict[str, Any]:
    """The config that was compiled."""
    encoder = config.encoder
    chips = math.prod(torus_of(topology))
    return {
        "topology": topology,
        "chips": chips,
        "encoder": f"{encoder.num_hidden_layers} x {encoder.hidden_size}",
        "rows_per_chip": rows.count / chips,
        "texts": rows.texts,
        "length": rows.length,
        "dtype": config.dtype,
        "layout": config.layout,
        "model_parallel": config.model_parallel,
        "accumulation": config.accumulation,
        "remat": config.remat,
    }


def too_large(
    config: TrainConfig, topology: str, rows: Rows, used: float, limit: float
) -> dict[str, Any]:
    """Report on a program that does not fit."""
    memory = {"limit": limit, "total": used}
    return {**head(config, topology, rows), "fits": False, "memory": memory}


def flops(program: Program, rows: Rows) -> float:
    """Model FLOPs of a chip in a step of full rows, each text one sequence."""
    count = rows.count / program.mesh.size
    tokens = count * rows.texts * rows.length
    predictions = count * rows.predictions
    counts = {"tokens": tokens, "seen": tokens * rows.length}
    config = program.model.encoder.config
    return float(config.training_flops(**counts, predictions=predictions))


def least_bytes(config: TrainConfig, program: Program, rows: Rows) -> float:
    """The least that a chip sends in a step, along rings, in the compute's dtype.

    Over "data": each gradient once to where it is updated, and each parameter once
    back; where rows are few, bringing activations to parameters can cost less still.
    Over "model": Megatron's four sums of a block's activations.
    """
    size = jax.numpy.dtype(config.dtype).itemsize
    n, m = sharding.copies(program.mesh), program.mesh.shape["model"]
    params = sum(math.prod(shape) for shape in whole_shapes(program))
    bytes = 2 * size * params * (n - 1) / n
    if m > 1 and "tensor" in config.layout:
        tokens = rows.count / n * rows.texts * rows.length
        block = 4 * 2 * size * tokens * config.encoder.hidden_size * (m - 1) / m
        bytes += block * config.encoder.num_hidden_layers
    return bytes


def whole_shapes(program: Program) -> list[tuple[int, ...]]:
    """Shapes of the parameters as a chip computes with them: cut over "model" only."""
    shapes = []
    for x in jax.tree.leaves(program.state.params):
        cuts = [
            program.mesh.shape["model"] if a == "model" else 1 for a in x.sharding.spec
        ]
        shapes.append(tuple(n // cut for n, cut in zip(x.shape, cuts, strict=True)))
    return shapes


def axis(config: TrainConfig, one: hlo.Collective) -> str:
    """The mesh's axis that an exchange crosses."""
    m = config.model_parallel
    if len(one.group) == m > 1 and one.group[-1] - one.group[0] == m - 1:
        return "model"
    return "data" if m == 1 or len({i % m for i in one.group}) == 1 else "both"


def by_kind(
    config: TrainConfig, exchanges: list[hlo.Collective]
) -> list[dict[str, Any]]:
    """Number and bytes of the exchanges, by kind, axis and dtype."""
    rows: dict = collections.defaultdict(lambda: [0, 0.0])
    for one in exchanges:
        dtypes = "+".join(sorted({x.dtype for x in one.arrays}))
        row = rows[one.kind, axis(config, one), dtypes]
        row[0] += one.times
        row[1] += one.sent
    names = ("kind", "axis", "dtype", "count", "sent")
    listed = [dict(zip(names, (*key, *row), strict=True)) for key, row in rows.items()]
    return sorted(listed, key=lambda row: -row["sent"])


def foreign(program: Program, exchanges: list[hlo.Collective]) -> float:
    """Bytes of gathered arrays of numbers that are neither parameters nor parts."""
    lengths = [program.mesh.shape[axis] for axis in sharding.COPIES]
    parts = [math.prod(lengths[n:]) for n in range(1, len(lengths) + 1)]
    wholes = map(math.prod, whole_shapes(program))
    sizes = {whole // part for whole in wholes for part in parts}
    return sum(
        one.times * x.bytes
        for one in exchanges
        if one.kind == "all-gather"
        for x in one.arrays
        if x.dtype[0] in "fb" and math.prod(x.shape) not in sizes
    )


def scores(config: TrainConfig, rows: Rows, text: str) -> bool:
    """True if an array of the size of a head's scores, L x L, is in memory."""
    length = rows.length
    return any(
        x.shape.count(length) >= 2
        and len(x.shape) > 2
        and math.prod(x.shape) >= length**2 * config.encoder.num_attention_heads
        for x in hlo.held(text)
    )


def largest(text: str, count: int = 5) -> list[str]:
    """The largest arrays with a buffer."""
    arrays = sorted(set(hlo.held(text)), key=lambda x: -x.bytes)
    names = (f"{x.dtype}[{','.join(map(str, x.shape))}]" for x in arrays)
    return list(dict.fromkeys(names))[:count]


def scaling(
    config: TrainConfig,
    chip: Chip,
    tori: dict[int, tuple[int, ...]],
    program: Program,
    useful: float,
    exchanges: list[hlo.Collective],
) -> dict[int, dict[str, float]]:
    """Estimates for slices of some sizes with the same rows on each chip.

    Texts that are encoded chunk by chunk are encoded twice.
    """
    again = 4 / 3 if getattr(config.task, "chunk_size", 0) else 1
    crossing = {"data": 0.0, "model": 0.0, "both": 0.0}
    for one in exchanges:
        where = axis(config, one)
        n = sharding.copies(program.mesh) if where == "data" else len(one.group)
        crossing[where] += one.sent if where == "model" else one.sent * n / (n - 1)
    estimates = {}
    for chips, torus in tori.items():
        if chips % config.model_parallel:
            continue
        copies = chips // config.model_parallel
        over = {"data": copies, "model": config.model_parallel}
        work = Work(
            flops=useful * again,
            updated=updated(config, program, over),
            data_bytes=crossing["data"] + crossing["both"],
            model_bytes=crossing["model"],
            copies=copies,
        )
        step = estimate(chip, torus, work)
        estimates[chips] = {
            "seconds": step.seconds,
            "exposed": step.exposed,
            "update": step.update,
            "mfu": useful / step.seconds / chip.peak,
            "efficiency": step.efficiency,
        }
    return estimates


def updated(config: TrainConfig, program: Program, over: dict[str, int]) -> float:
    """Parameters that a chip updates where the mesh has these lengths."""
    total = 0.0
    for path, x in jax.tree_util.tree_leaves_with_path(program.state.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = sharding.LAYOUTS[config.layout](name, x.shape, over)
        total += math.prod(x.shape) / math.prod(over[a] for a in spec if a)
    return total


def in_table(report: dict[str, Any]) -> str:
    """The same for a person, sizes and times in words."""
    size = {k: format_bytes(v) for k, v in report["memory"].items()}
    if not report["fits"]:
        return f"{_title(report)}\ndoes not fit: {size['total']} of {size['limit']}"
    parts = ", ".join(f"{k} {v}" for k, v in list(size.items())[2:])
    flops = {k: f"{v / 1e12:.3f}" for k, v in report["flops"].items()}
    rows = {
        "compiled": f"in {report['seconds_to_compile']:.0f} s",
        "attention": f"{report['attention']}; scores in memory: "
        f"{'yes' if report['scores_in_memory'] else 'no'}",
        "memory": f"{size['total']} of {size['limit']} ({parts})",
        "largest": ", ".join(report["largest"][:3]),
        "TFLOP": f"{flops['model']} of the model, rows full and of one sequence each; "
        f"{flops['hardware']} of the hardware",
        "traffic": f"{format_bytes(report['memory_traffic'])} of memory, at full rate "
        f"in {1e3 * report['memory_seconds']:.1f} ms",
        "sends": f"{format_bytes(report['sent'])}, {report['ratio']:.3f} of the least; "
        f"activations gathered {format_bytes(report['gathered_activations'])}",
    }
    return "\n".join(
        [
            _title(report),
            *(f"{name:10} {value}" for name, value in rows.items()),
            *map(_exchange, report["collectives"]),
            "estimate, as benchmarks/roofline.py says, with as many rows a chip:",
            *(_step(*item) for item in report["estimate"].items()),
        ]
    )


def _title(report):
    fields = ("dtype", "layout", "model_parallel", "accumulation", "remat")
    changed = ", ".join(f"{name} {report[name]}" for name in fields)
    rows = f"{report['rows_per_chip']:g} rows of "
    rows += f"{report['texts']} x " if report["texts"] > 1 else ""
    return (
        f"{report['topology']}, {report['chips']} chips: {report['encoder']}, "
        f"{rows}{report['length']} a chip\n{changed}"
    )


def _exchange(row):
    what = f"{row['kind']} over {row['axis']}, {row['dtype']}"
    return f"{'':10} {row['count']:5} {what}: {format_bytes(row['sent'])}"


def _step(chips, row):
    ms = {
        name: f"{1e3 * row[name]:.1f} ms" for name in ("seconds", "exposed", "update")
    }
    return (
        f"{chips:10} chips: {ms['seconds']}, of which exchange {ms['exposed']}, update "
        f"{ms['update']}; MFU {row['mfu']:.1%}, efficiency {row['efficiency']:.1%}"
    )
