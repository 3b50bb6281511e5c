"""Exchanges and memory of a compiled program, read from XLA's text of it."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KINDS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "collective-permute",
)
# The TPU compiler writes a sum of which each device keeps a part as a fusion of a sum
# and a slice, whose computation is named like this.
SCATTER = "all-reduce-scatter"

# A computation: its instructions by name, and the last one as "ROOT" too.
Body = dict[str, str]

_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^ +(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b(pred|bf16|[a-z]\d+\w*)\[([\d,]*)\](\{[^{}]*\})?")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation"
    r"|branch_computations|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_AXIS = re.compile(r"'(\w+)'=(\d+)")
# What gives no array of its own.
_NAMES = ("tuple", "get-tuple-element", "parameter", "bitcast", "while", "conditional")
# What moves no bytes: these, what others run or have begun, and numbers in the program.
_FREE = (*_NAMES, "call", "async-start", "constant", "after-all", "opt-barrier")
# What reads of its first operand no more than it gives.
_SLICES = ("slice", "dynamic-slice", "gather", "slice-start", "dynamic-slice-start")


class Array(NamedTuple):
    """One array of a program, as one device holds it."""

    dtype: str
    shape: tuple[int, ...]
    space: int = 0  # 0 is the device's memory (HBM), 1 the core's own (VMEM)

    @property
    def bytes(self) -> int:
        """Without what fills up its tiles."""
        bits = 8 if self.dtype == "pred" else int(re.search(r"\d+", self.dtype)[0])
        return math.prod(self.shape) * bits // 8


class Collective(NamedTuple):
    """One exchange between devices, which may carry many arrays.

    Attributes:
      kind: one of `KINDS`.
      arrays: whole: as they are before a scatter, or after a gather.
      group: the devices of its first group, by their places in the mesh.
      times: that a step runs it.
    """

    kind: str
    arrays: tuple[Array, ...]
    group: tuple[int, ...]
    times: int

    @property
    def bytes(self) -> int:
        """That each device sends in a step, were the group endless.

        A sum that all devices keep is a scatter and a gather: it sends all twice.
        """
        passes = 2 if self.kind == "all-reduce" else 1
        return self.times * passes * sum(array.bytes for array in self.arrays)

    @property
    def sent(self) -> float:
        """Bytes that each device sends in a step, along a ring."""
        n = len(self.group)
        return self.bytes * (1 if self.kind == "collective-permute" else (n - 1) / n)


def collectives(text: str) -> list[Collective]:
    """Every exchange of a compiled program.

    A start and its done are one; what a loop runs counts as often as it runs; of a
    conditional all branches count.

    Raises:
      ValueError: for an exchange in a loop whose number of turns is unknown.
    """
    bodies = computations(text)
    devices = int(re.search(r"num_partitions=(\d+)", text)[1])
    again, exchanges = shown_again(bodies), []
    for name, times in turns(text, bodies).items():
        for line in instructions(bodies[name]) if name not in again else ():
            kind = opcode(line).removesuffix("-start")
            if kind not in KINDS or len(group := members(line, devices)) == 1:
                continue
            if times is None:
                raise ValueError(f"how often a loop runs is unknown: {line[:200]}")
            kind = "reduce-scatter" if name.startswith(SCATTER) else kind
            exchanges.append(Collective(kind, _whole(line, len(group)), group, times))
    return exchanges


def shown_again(bodies: dict[str, Body]) -> set[str]:
    """Computations that only show an exchange that another one starts.

    The TPU compiler writes an exchange beside other work as fusions: one starts it, one
    works meanwhile, one ends it, and the bodies of all three show it.
    """
    return {
        below
        for body in bodies.values()
        for line in instructions(body)
        for below in called(line)
        if line.startswith(("%async-collective-done", "async-collective-done"))
        or below.startswith("async_collective_fusion")
    }


def _whole(line, devices):
    """The arrays that are exchanged, from those an instruction gives."""
    made = arrays(result(line))
    kind = opcode(line)
    if kind.endswith("-start") and kind != "all-reduce-start":
        made = [x for x in made if x.shape]  # which gives its operands too
        made = made[len(made) // 2 :]
    if kind.startswith("reduce-scatter"):
        made = [Array(x.dtype, (devices, *x.shape)) for x in made]
    return tuple(made)


def computations(text: str) -> dict[str, Body]:
    """The computations of a program, by name."""
    bodies: dict[str, Body] = {}
    body: Body = {}
    for line in text.splitlines():
        if header := _HEADER.match(line):
            body = bodies[header[1]] = {}
        elif instruction := _INSTRUCTION.match(line):
            is_root, name = instruction.groups()
            body[name] = line.strip()
            if is_root:
                body["ROOT"] = line.strip()
    return bodies


def instructions(body: Body) -> list[str]:
    """Each instruction once."""
    return [line for name, line in body.items() if name != "ROOT"]


def turns(text: str, bodies: dict[str, Body]) -> dict[str, int | None]:
    """Number of times a step runs each computation; None where it is unknown."""
    times_run: dict[str, int | None] = {}

    def visit(name: str, times: int | None) -> None:
        before = times_run.get(name, 0)
        times_run[name] = None if None in (before, times) else before + times
        for line in instructions(bodies[name]):
            often = loop_turns(line, bodies[name], bodies)
            for below in called(line):
                visit(below, None if None in (times, often) else times * often)

    visit(re.search(r"^ENTRY %?([\w.\-]+)", text, re.M)[1], 1)
    return times_run


def loop_turns(line: str, body: Body, bodies: dict[str, Body]) -> int | None:
    """Number of times an instruction runs the computation it calls: 1 but for loops.

    XLA says so, or a counter does: one that grows by a constant up to a constant.
    """
    if opcode(line) != "while":
        return 1
    if match := re.search(r"known_trip_count\W+n\W+(\d+)", line):
        return int(match[1])
    ends = bodies[re.search(r"condition=%?([\w.\-]+)", line)[1]]
    turn = bodies[re.search(r"body=%?([\w.\-]+)", line)[1]]
    try:
        counter, limit = (ends[name] for name in operands(ends["ROOT"]))
        place = int(re.search(r"index=(\d+)", counter)[1])
        first = _constant(body[operands(body[operands(line)[0]])[place]], body)
        grown = operands(turn[operands(turn["ROOT"])[place]])
        step = sum(_constant(turn[name], turn) or 0 for name in grown)
        return -((first - _constant(limit, ends)) // step)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _constant(line, body):
    """The number that an instruction is, copies of one included."""
    if opcode(line) in ("copy", "bitcast"):
        return _constant(body[operands(line)[0]], body)
    match = re.search(r" constant\((\d+)\)", line)
    return int(match[1]) if match else None


def held(text: str) -> Iterator[Array]:
    """The arrays that instructions outside of fusions make: what has a buffer."""
    bodies = computations(text)
    for name in turns(text, bodies).keys() - _fused(bodies):
        for line in instructions(bodies[name]):
            if opcode(line) not in _NAMES:
                yield from arrays(result(line))


def hbm_bytes(text: str) -> int:
    """Bytes that a step reads from the device's memory and writes to it.

    Operands and results of the instructions outside of fusions. XLA's own "bytes
    accessed" also counts arrays in the core's memory, whose layout says S(1). A loop of
    unknown turns counts once.
    """
    bodies = computations(text)
    hidden = _fused(bodies) | shown_again(bodies)
    return sum(
        (1 if times is None else times) * _moved(line, bodies[name], bodies)
        for name, times in turns(text, bodies).items()
        if name not in hidden
        for line in instructions(bodies[name])
    )


def _fused(bodies):
    """Computations within fusions, whose own instructions have no buffers."""
    return {
        name
        for body in bodies.values()
        for line in instructions(body)
        if opcode(line) == "fusion"
        for name in called(line)
    }


def _moved(line, body, bodies):
    """Bytes of HBM that an instruction reads and writes."""
    kind = opcode(line)
    is_done = "-done" in line.split(" = ")[0] or kind.endswith("-done")
    if kind in _FREE or is_done or '"AllocateBuffer"' in line:
        return 0
    names = operands(line)
    sources = [arrays(result(body[name])) if name in body else [] for name in names]
    made = arrays(result(line))
    if kind.endswith("-start"):  # which gives its operands too, and a context
        for array in (x for source in sources for x in source):
            if array in made:
                made.remove(array)
    if kind == "fusion":
        (inside,) = list(called(line))[:1]
        return _in_fusion(bodies[inside], sources, made)
    if kind in _SLICES:
        return _hbm(made) + min(_hbm(sources[0]), _all(made)) + _hbm(*sources[1:])
    if kind == "dynamic-update-slice":
        return _hbm(sources[1]) + (_all(sources[1]) if _hbm(made) else 0)
    return _hbm(made) + _hbm(*sources)


def _in_fusion(body, sources, made):
    """Bytes of HBM of a fusion: of what is only sliced there, the slices."""
    lines = instructions(body)
    inputs = {
        int(re.search(r"parameter\((\d+)\)", line)[1]): line.split(" = ")[0].strip("%")
        for line in lines
        if opcode(line) == "parameter"
    }
    moved = 0
    for number, source in enumerate(sources):
        name = inputs[number]
        users = [x for x in lines if name in operands(x)]
        first = [operands(x)[0] == name for x in users]
        kinds = {opcode(x) for x in users}
        if all(first) and kinds and kinds <= {*_SLICES, "dynamic-update-slice"}:
            read = [
                arrays(result(x)) for x in users if opcode(x) != "dynamic-update-slice"
            ]
            moved += min(_hbm(source), sum(_all(x) for x in read))
        else:
            moved += _hbm(source)
    root = body["ROOT"]
    if opcode(root) == "dynamic-update-slice":
        update = operands(root)[1]
        return moved + (_all(arrays(result(body[update]))) if _hbm(made) else 0)
    return moved + _hbm(made)


def _hbm(*groups):
    """Bytes of the arrays that lie in HBM."""
    return sum(x.bytes for group in groups for x in group if not x.space)


def _all(group):
    return sum(x.bytes for x in group)


def arrays(type: str) -> list[Array]:
    """The arrays in a type as XLA writes it, a tuple's in their order."""
    return [
        Array(dtype, tuple(int(n) for n in shape.split(",") if n), _space(layout))
        for dtype, shape, layout in _ARRAY.findall(type)
    ]


def _space(layout):
    """The memory space in a layout such as {1,0:T(8,128)S(1)}."""
    match = re.search(r"S\((\d+)\)", layout)
    return int(match[1]) if match else 0


def opcode(line: str) -> str:
    """The operation of an instruction: "add", "fusion", "all-reduce-start"."""
    return _OPCODE.search(line)[1]


def result(line: str) -> str:
    """The type of what an instruction gives."""
    return line[line.index(" = ") : _OPCODE.search(line).start()]


def operands(line: str) -> list[str]:
    """Names of the instructions that an instruction reads."""
    inside = line[_OPCODE.search(line).end() :].split(")")[0]
    return re.findall(r"%([\w.\-]+)", inside)


def called(line: str) -> Iterator[str]:
    """Names of the computations that an instruction runs."""
    for names in _CALLED.findall(line.split(", metadata=")[0]):
        yield from re.findall(r"[\w.\-]+", names)


def members(line: str, devices: int) -> tuple[int, ...]:
    """The first group of devices that an exchange joins, in one of XLA's notations."""
    if re.search(r"source_target_pairs=\{\{", line):
        return _ring(line)
    groups = re.search(r"replica_groups=(.*?)(?:, [a-z_]+=|$)", line)[1]
    if groups.startswith("mesh"):  # mesh['a'=4,'b'=2] {'b'}
        sizes = dict(_AXIS.findall(groups))
        joined = re.findall(r"'(\w+)'(?!=)", groups)
        ids = np.arange(devices).reshape([int(n) for n in sizes.values()])
        along = tuple(slice(None) if name in joined else 0 for name in sizes)
        return tuple(ids[along].ravel().tolist())
    if groups.startswith("["):  # [4,2]<=[2,4]T(1,0)
        form = r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?"
        shape, source, order = re.match(form, groups).groups()
        ids = np.arange(devices).reshape(_numbers(source))
        ids = ids.transpose(_numbers(order)) if order else ids
        return tuple(ids.reshape(_numbers(shape))[0].tolist())
    first = re.match(r"\{\{([\d,]+)\}", groups)  # {{0,1},{2,3}}; {} joins all
    return _numbers(first[1]) if first else tuple(range(devices))


def _ring(line):
    """The devices that are reached from device 0 by the pairs of a permutation."""
    pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", line)[1]
    to = dict(_numbers(pair) for pair in re.findall(r"\d+,\d+", pairs))
    ring = [0]
    while (after := to.get(ring[-1], 0)) not in ring:
        ring.append(after)
    return tuple(sorted(ring))


def _numbers(text):
    return tuple(int(n) for n in text.split(","))
