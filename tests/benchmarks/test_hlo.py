"""Laws of reading a compiled program's text."""

import pytest

from benchmarks import hlo

RING = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
TPU = """HloModule jit_step, is_scheduled=true, num_partitions=4

%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %sum = f32[] add(%p, %q)
}

%all-reduce-scatter.1 (input: bf16[8,6]) -> bf16[2,6] {
  %input = bf16[8,6]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.3 = bf16[8,6]{1,0:T(8,128)(2,1)} all-reduce(%input), channel_id=1, replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %dynamic-slice.1 = bf16[2,6]{1,0} dynamic-slice(%all-reduce.3)
}

%all-reduce-scatter.2 (input.1: bf16[8,6]) -> bf16[2,6] {
  %input.1 = bf16[8,6]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.4 = bf16[8,6]{1,0:T(8,128)(2,1)} all-reduce(%input.1), channel_id=1, replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %dynamic-slice.2 = bf16[2,6]{1,0} dynamic-slice(%all-reduce.4)
}

%fused_start (param: bf16[2,8]) -> bf16[8,8] {
  %param = bf16[2,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.1 = bf16[8,8]{1,0} all-gather(%param), channel_id=4, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}
}

%async_collective_fusion.7 (param.2: bf16[2,8]) -> bf16[8,8] {
  %param.2 = bf16[2,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.3 = bf16[8,8]{1,0} all-gather(%param.2), channel_id=4, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}
}

%fused_done (param.1: bf16[2,8]) -> bf16[8,8] {
  %param.1 = bf16[2,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.2 = bf16[8,8]{1,0} all-gather(%param.1), channel_id=4, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}
}

%turn (state: (u32[], f32[16])) -> (u32[], f32[16]) {
  %state = (u32[], f32[16]{0}) parameter(0)
  %counter = u32[] get-tuple-element(%state), index=0
  %x = f32[16]{0} get-tuple-element(%state), index=1
  %two = u32[] constant(2)
  %more = u32[] add(%counter, %two)
  %permute-start = (f32[16]{0}, f32[16]{0}, u32[], u32[]) collective-permute-start(%x), channel_id=5, RING
  %permute-done = f32[16]{0} collective-permute-done(%permute-start)
  ROOT %next = (u32[], f32[16]{0}) tuple(%more, %permute-done)
}

%ends (state.1: (u32[], f32[16])) -> pred[] {
  %state.1 = (u32[], f32[16]{0}) parameter(0)
  %counter.1 = u32[] get-tuple-element(%state.1), index=0
  %six = u32[]{:T(128)} constant(6)
  ROOT %less = pred[] compare(%counter.1, %six), direction=LT
}

ENTRY %main (a: bf16[8,6], b: bf16[2,8], c: f32[16]) -> f32[16] {
  %a = bf16[8,6]{1,0} parameter(0)
  %b = bf16[2,8]{1,0} parameter(1)
  %c = f32[16]{0} parameter(2)
  %scattered = bf16[2,6]{1,0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1
  %too = bf16[2,6]{1,0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.2
  %async-collective-start = bf16[8,8]{1,0} fusion(%b), kind=kCustom, calls=%fused_start
  %beside = bf16[8,8]{1,0} fusion(%b), kind=kCustom, calls=%async_collective_fusion.7
  %async-collective-done = bf16[8,8]{1,0} fusion(%b), kind=kCustom, calls=%fused_done
  %pair = (f32[4]{0}, /*index=1*/pred[3]{0:T(128)}) all-reduce(%c, %c), channel_id=7, replica_groups={{0,2},{1,3}}, to_apply=%add, metadata={op_name="all-gather(x)"}
  %alone = f32[4]{0} all-reduce(%c), channel_id=8, replica_groups={{0},{1},{2},{3}}, to_apply=%add
  %zero = u32[] constant(0)
  %first = (u32[], f32[16]{0}) tuple(%zero, %c)
  %loop = (u32[], f32[16]{0}) while(%first), condition=%ends, body=%turn
  ROOT %last = f32[16]{0} get-tuple-element(%loop), index=1
}
""".replace("RING", RING)


def found(text=TPU):
    return {one.kind: one for one in hlo.collectives(text)}


def test_every_exchange_is_found_once():
    kinds = [one.kind for one in hlo.collectives(TPU)]
    # Two scatters, though they share a channel; one gather, though three bodies show it.
    expected = [
        "all-gather",
        "all-reduce",
        "collective-permute",
        *["reduce-scatter"] * 2,
    ]
    assert sorted(kinds) == expected


def test_a_sum_sends_its_arrays_twice_and_a_scatter_or_a_gather_once():
    assert found()["all-reduce"].sent == 2 * (4 * 4 + 3) * 1 / 2
    assert found()["reduce-scatter"].sent == 2 * 8 * 6 * 3 / 4
    assert found()["all-gather"].sent == 2 * 8 * 8 * 3 / 4


def test_what_a_loop_sends_counts_as_often_as_it_turns():
    assert found()["collective-permute"].times == 3
    assert found()["collective-permute"].sent == 3 * 16 * 4
    known = TPU.replace("body=%turn", 'body=%turn, x={"known_trip_count":{"n":"5"}}')
    assert found(known)["collective-permute"].times == 5


def test_a_loop_of_unknown_turns_that_exchanges_is_refused():
    unknown = TPU.replace("u32[]{:T(128)} constant(6)", "u32[] parameter(1)")
    with pytest.raises(ValueError, match="how often a loop runs is unknown"):
        hlo.collectives(unknown)


def test_groups_are_read_in_every_notation():
    groups = {
        "replica_groups={}": (0, 1, 2, 3, 4, 5, 6, 7),
        "replica_groups={{0,1},{2,3}}": (0, 1),
        "replica_groups=[2,4]<=[8]": (0, 1, 2, 3),
        "replica_groups=[4,2]<=[2,4]T(1,0)": (0, 4),
        "replica_groups=mesh['a'=4,'b'=2] {'b'}, to_apply=%x": (0, 1),
        "replica_groups=mesh['a'=4,'b'=2] {'a'}": (0, 2, 4, 6),
        "replica_groups=mesh['a'=4,'b'=2] {'a','b'}": tuple(range(8)),
        "source_target_pairs={{0,2},{2,0},{1,3},{3,1}}": (0, 2),
    }
    for text, group in groups.items():
        assert hlo.members(text, 8) == group, text


def test_arrays_within_fusions_have_no_buffer():
    held = set(hlo.held(TPU))
    assert hlo.Array("bf16", (2, 6)) in held and hlo.Array("f32", (4,)) in held
    assert hlo.Array("bf16", (8, 6)) not in held


MEMORY = """HloModule jit_step, is_scheduled=true, num_partitions=1

%rows (table: f32[1000,8], ids: s32[4]) -> f32[4,8] {
  %table = f32[1000,8]{1,0} parameter(0)
  %ids = s32[4]{0} parameter(1)
  ROOT %looked_up = f32[4,8]{1,0} gather(%table, %ids), offset_dims={1}
}

%kept (whole: f32[1000,8], row: f32[1,8], at: s32[]) -> f32[1000,8] {
  %whole = f32[1000,8]{1,0} parameter(0)
  %row = f32[1,8]{1,0} parameter(1)
  %at = s32[] parameter(2)
  ROOT %set = f32[1000,8]{1,0} dynamic-update-slice(%whole, %row, %at, %at)
}

%turn (x: f32[16]) -> f32[16] {
  %x = f32[16]{0} parameter(0)
  ROOT %twice = f32[16]{0} add(%x, %x)
}

%ends (x.1: f32[16]) -> pred[] {
  %x.1 = f32[16]{0} parameter(0)
  ROOT %no = pred[]{:S(1)} custom-call(%x.1), custom_call_target="AllocateBuffer"
}

ENTRY %main (a: f32[1000,8], i: s32[4], c: f32[16]) -> f32[16] {
  %a = f32[1000,8]{1,0:T(8,128)} parameter(0)
  %i = s32[4]{0} parameter(1)
  %c = f32[16]{0} parameter(2)
LINES
}
"""


@pytest.mark.parametrize(
    "bytes, lines",
    [
        # From HBM to the core's memory, there and back.
        (64, "%in = f32[16]{0:T(128)S(1)} copy(%c)"),
        (64 + 64, "%in = f32[16]{0:S(1)} copy(%c)\n  %out = f32[16]{0} copy(%in)"),
        (
            64,
            "%s = (f32[16]{0:S(1)}, f32[16]{0}, u32[]{:S(2)}) copy-start(%c)\n"
            "  %d = f32[16]{0:S(1)} copy-done(%s)\n"
            "  %e = f32[16]{0:S(1)} add(%d, %d)",
        ),
        # Of a table, the rows that are read or written.
        (4 * 4 + 2 * 128, "%g = f32[4,8]{1,0} fusion(%a, %i), calls=%rows"),
        (
            4 * 32,
            "%r = f32[1,8]{1,0} slice(%a), slice={[0:1], [0:8]}\n"
            "  %z = s32[]{:S(2)} constant(0)\n"
            "  %k = f32[1000,8]{1,0} fusion(%a, %r, %z), calls=%kept",
        ),
        # Other names for what is there.
        (
            0,
            "%t = (f32[16]{0}) tuple(%c)\n  %e = f32[16]{0} get-tuple-element(%t), index=0",
        ),
        # As often as a loop turns.
        (
            5 * 3 * 64,
            "%w = f32[16]{0} while(%c), condition=%ends, body=%turn, "
            'x={"known_trip_count":{"n":"5"}}',
        ),
    ],
)
def test_only_what_lies_in_the_memory_of_the_device_is_traffic(bytes, lines):
    assert hlo.hbm_bytes(MEMORY.replace("LINES", f"  {lines}")) == bytes
