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
_ARRAY = re.compile(r"\b(pred|bf16|[a-z]\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation"
    r"|branch_computations|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_AXIS = re.compile(r"'(\w+)'=(\d+)")
# What gives no array of its own.
_NAMES = ("tuple", "get-tuple-element", "parameter", "bitcast", "while", "conditional")


class Array(NamedTuple):
    """One array of a program, as one device holds it."""

    dtype: str
    shape: tuple[int, ...]

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
    fused = {
        name
        for body in bodies.values()
        for line in instructions(body)
        if opcode(line) == "fusion"
        for name in called(line)
    }
    for name in turns(text, bodies).keys() - fused:
        for line in instructions(bodies[name]):
            if opcode(line) not in _NAMES:
                yield from arrays(result(line))


def arrays(type: str) -> list[Array]:
    """The arrays in a type as XLA writes it, a tuple's in their order."""
    return [
        Array(dtype, tuple(int(n) for n in shape.split(",") if n))
        for dtype, shape in _ARRAY.findall(type)
    ]


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
