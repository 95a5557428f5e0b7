# SPDX-License-Identifier: MIT
"""Matrix instructions against numpy in float64: each form on each architecture that has it."""

import functools
import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

import amdgpu_matrix as matrix
from amdgpu_code import ARCHITECTURES, encodings, instruction_kernels

from rocpy.errors import KernelError
from rocpy.testing import amdgpu
from rocpy.testing.tolerance import gamma, ulp, unit_roundoff

HALF_TYPES = ("f16", "bf16")
SOME = [pytest.param(arch, marks=[] if arch in ("gfx942", "gfx1201") else pytest.mark.slow) for arch in ARCHITECTURES]


@functools.cache
def forms(arch):
    """Return the forms that LLVM knows on an architecture, and their bytes."""
    made = encodings([matrix.instruction(form, arch) for form in matrix.FORMS], arch)
    return {form: code for form, code in zip(matrix.FORMS, made, strict=True) if code is not None}


@functools.cache
def alike_forms(arch, of_floats):
    """Return those of an architecture whose kernels are assembled together: constants are written the same way."""
    return tuple(form for form in forms(arch) if (form.result in ("f32", "f64")) == of_floats)


def elements(form, arch, operand, shape, rng):
    kind = getattr(form, operand)
    dtype = form.numpy_type(kind, arch)
    if kind in ("iu4", "iu8", "i8", "i32"):
        top = {"iu4": 16, "iu8": 256}.get(kind)
        low, high = (0, top) if top else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
        return rng.integers(low, high, shape).astype(dtype)
    scale = 2.0 ** rng.integers(-4, 5, shape)
    return (rng.standard_normal(shape) * (scale if kind not in ("fp8", "bf8") else 1)).astype(dtype)


class Run:
    """Operands of a form, and what the emulator makes of them."""

    def __init__(self, form, arch, seed=0):
        rng = np.random.default_rng(seed)
        self.form, self.arch, self.lanes = form, arch, matrix.lanes_of(arch)
        self.a = elements(form, arch, "a", (form.blocks, form.rows, form.depth), rng)
        self.b = elements(form, arch, "b", (form.blocks, form.columns, form.depth), rng)
        self.c = elements(form, arch, "result", (form.blocks, form.rows, form.columns), rng)
        self.dtype = self.c.dtype

    def execute(self, modifiers="", *, accumulators=False, constant=None, first=0, threads=None):
        form, arch, lanes = self.form, self.arch, self.lanes
        alike = (form,) if modifiers else alike_forms(arch, form.result in ("f32", "f64"))
        texts = (matrix.instruction(each, arch, modifiers, accumulators, constant) for each in alike)
        code = matrix.kernels(arch, tuple(zip(alike, texts, strict=True)))
        registers = []
        for operand, values, extent in (("a", self.a, form.rows), ("b", self.b, form.columns)):
            bits = matrix.BITS[getattr(form, operand)]
            positions = matrix.input_positions(form, arch, extent)
            made = matrix.pack(values, positions, bits, matrix.words_of(form, arch, operand), lanes)
            if arch == "gfx1100":
                made[:, 16:] = made[:, :16]
            registers.append(made)
        positions, width = matrix.result_positions(form, arch), matrix.BITS[form.result]
        apart = 32 if arch == "gfx1100" else None
        sums = matrix.pack(self.c, positions, width, matrix.words_of(form, arch, "d"), lanes, apart, first)
        out = np.zeros_like(sums)
        self.report = amdgpu.run(code, f"k{alike.index(form)}", 1, threads or lanes, *registers, sums, out)
        self.registers = out
        return matrix.unpack(out, positions, self.dtype, width, apart, first)

    def factors(self, values, operand):
        """Return what the unit multiplies: of XF32 the float32 without its last 13 bits."""
        is_reduced = getattr(self.form, operand) == "xf32"
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if is_reduced else values

    def check(self, seen, a=None, b=None, c=None):
        """Compare with a b + c, of float64 or of integers."""
        kind = np.int64 if self.form.result == "i32" else np.float64
        a = self.factors(self.a, "a").astype(kind) if a is None else a
        b = self.factors(self.b, "b").astype(kind) if b is None else b
        c = self.c.astype(kind) if c is None else c
        wanted = a @ b.transpose(0, 2, 1) + c
        if kind is np.int64:
            np.testing.assert_array_equal(seen, wanted.astype(np.int32))
            return
        # The sum is kept in float64, each step rounded there, and rounded once to the type of the result.
        steps = gamma(self.form.depth + 1, unit_roundoff("float64"))
        bound = steps * (np.abs(a) @ np.abs(b).transpose(0, 2, 1) + np.abs(c))
        if self.form.result != "f64":
            bound += ulp(np.abs(wanted) + bound, self.dtype) / 2
        assert (np.abs(seen.astype(np.float64) - wanted) <= bound).all()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products(arch):
    for form in forms(arch):
        run = Run(form, arch)
        run.check(run.execute())
        assert run.report.opcodes[form.name if form.name in run.report.opcodes else canonical(form, arch)] == 1


def canonical(form, arch):
    """Return the name that the decoder gives the form, which may have two spellings."""
    return amdgpu.decode(arch, forms(arch)[form])[0][2].split()[0]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_executed_form_is_tested(arch):
    tested = {canonical(form, arch) for form in forms(arch)}
    known = {
        one.name
        for one in amdgpu.opcodes()
        if one.executed and arch in one.numbers and one.name.startswith(("v_mfma_", "v_wmma_"))
    }
    assert known == tested


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_decoder_gives_the_text_that_llvm_assembles(arch):
    made = list(forms(arch).values())
    texts = [amdgpu.decode(arch, code)[0][2] for code in made]
    assert [code[:8] for code in encodings(texts, arch)] == [code[:8] for code in made]


@pytest.mark.parametrize("arch", [pytest.param("gfx90a", marks=pytest.mark.slow), "gfx942"])
def test_accumulation_registers(arch):
    for form in forms(arch):
        run = Run(form, arch)
        run.check(run.execute(accumulators=True))
        assert run.report.opcodes["v_accvgpr_write_b32"] == run.report.opcodes["v_accvgpr_read_b32"]


@pytest.mark.parametrize("arch", SOME)
def test_a_constant_for_the_sums(arch):
    for form in forms(arch):
        run = Run(form, arch)
        run.check(run.execute(constant="0"), c=np.zeros(run.c.shape, np.int64 if form.result == "i32" else np.float64))
        if form.result in ("f32", "f64"):
            run.check(run.execute(constant="-4.0"), c=np.full(run.c.shape, -4.0))


def of(arch, *names):
    found = [form for form in forms(arch) if form.name in names]
    assert len(found) == len(names), names
    return found


def test_a_block_of_a_stands_for_all():
    for form in of("gfx942", "v_mfma_f32_32x32x1_2b_f32", "v_mfma_f32_16x16x4_4b_f16", "v_mfma_i32_4x4x4_16b_i8"):
        run, chosen = Run(form, "gfx942"), form.blocks - 1
        wide = run.a.astype(np.int64 if form.result == "i32" else np.float64)
        seen = run.execute(f"cbsz:{form.blocks.bit_length() - 1} abid:{chosen}")
        run.check(seen, a=np.repeat(wide[chosen : chosen + 1], form.blocks, axis=0))
    (form,) = of("gfx942", "v_mfma_f32_4x4x4_16b_f16")
    with pytest.raises(KernelError, match="cbsz:1 abid:0 for 16 blocks is not emulated"):
        Run(form, "gfx942").execute("cbsz:1")


@pytest.mark.parametrize("pattern", range(1, 8))
def test_lanes_of_b_take_others(pattern):
    lanes = np.arange(64)
    taken = {1: lanes % 32, 2: lanes % 32 + 32, 3: (lanes + 16) % 64}.get(pattern, lanes % 16 + 16 * (pattern - 4))
    for form in of("gfx942", "v_mfma_f32_32x32x2_f32", "v_mfma_f32_16x16x16_f16", "v_mfma_f32_4x4x4_16b_bf16"):
        run = Run(form, "gfx942")
        lane, item = matrix.input_positions(form, "gfx942", form.columns)
        held = np.zeros((64, item.max() + 1))
        held[lane, item] = run.b.astype(np.float64)
        run.check(run.execute(f"blgp:{pattern}"), b=held[taken[lane], item])


def test_signs_of_float64():
    for form in of("gfx942", "v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"):
        for signs in (1, 2, 4, 7):
            run = Run(form, "gfx942")
            a, b, c = (-x if signs >> k & 1 else x for k, x in enumerate((run.a, run.b, run.c)))
            run.check(run.execute(f"neg:[{signs & 1},{signs >> 1 & 1},{signs >> 2}]"), a, b, c)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_signs_of_halves(arch):
    for form in of(arch, "v_wmma_f32_16x16x16_f16", "v_wmma_bf16_16x16x16_bf16"):
        run = Run(form, arch)
        a, b, c = (x.astype(np.float64) for x in (run.a, run.b, run.c))
        a[..., ::2], b[..., 1::2] = -a[..., ::2], -b[..., 1::2]
        run.check(run.execute("neg_lo:[1,0,0] neg_hi:[0,1,0]"), a, b, c)
        run.check(run.execute("neg_lo:[0,0,1] neg_hi:[0,0,1]"), c=-np.abs(c))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_signed_and_unsigned_integers(arch):
    forms_of_integers = [form for form in forms(arch) if form.a.startswith("iu")]
    for form in forms_of_integers:
        bits = matrix.BITS[form.a]
        for signs in range(4):
            run = Run(form, arch)
            a, b = (
                np.where(x.astype(np.int64) >> (bits - 1), x.astype(np.int64) - (1 << bits), x) if signs >> k & 1 else x
                for k, x in enumerate((run.a, run.b))
            )
            wide = np.int64(a), np.int64(b)
            run.check(run.execute(f"neg_lo:[{signs & 1},{signs >> 1},0]"), *wide)
    (form,) = of(arch, "v_wmma_i32_16x16x16_iu8")
    run = Run(form, arch)
    run.c[:] = np.where(run.c < 0, -(1 << 31), (1 << 31) - 1)
    exact = run.a.astype(np.int64) @ run.b.transpose(0, 2, 1).astype(np.int64) + run.c
    np.testing.assert_array_equal(run.execute("clamp"), np.clip(exact, -(1 << 31), (1 << 31) - 1))


def test_halves_of_the_results_registers():
    for form in of("gfx1100", "v_wmma_f16_16x16x16_f16", "v_wmma_bf16_16x16x16_bf16"):
        run = Run(form, "gfx1100")
        run.check(run.execute("op_sel:[0,0,1]", first=16))
        assert not (run.registers & 0xFFFF).any()  # what was there


@pytest.mark.parametrize(("arch", "flushes"), [("gfx90a", True), ("gfx942", False), ("gfx1201", False)])
def test_denormals(arch, flushes):
    for kind in HALF_TYPES:
        form = next(f for f in forms(arch) if (f.a, f.result, f.rows, f.depth) == (kind, "f32", 16, 16))
        run = Run(form, arch)
        tiny = {"f16": 2.0**-24, "bf16": 2.0**-130}[kind]
        run.a[:] = tiny
        run.b[:] = 2.0**7
        run.c[:] = 2.0**-130
        if flushes:
            assert not run.execute().any()
        else:
            run.check(run.execute())


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_infinities_and_nans(arch):
    form = next(f for f in forms(arch) if (f.a, f.result, f.rows, f.depth) == ("bf16", "f32", 16, 16))
    run = Run(form, arch)
    run.a[0, 3, 5], run.a[0, 7, 2], run.c[0, 9, 1] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = run.a.astype(np.float64) @ run.b.transpose(0, 2, 1).astype(np.float64) + run.c
    seen = run.execute()
    special = ~np.isfinite(wanted)
    assert special.sum() == 33
    np.testing.assert_array_equal(seen[special], wanted[special])
    assert np.isfinite(seen[~special]).all()


def test_lanes_that_must_repeat_and_be_active():
    (form,) = of("gfx1100", "v_wmma_f32_16x16x16_f16")
    text = "v_mov_b32 v16, v0\n" + matrix.instruction(form, "gfx1100")
    with pytest.raises(KernelError, match="lanes 0 and 16 hold different values of source 0"):
        amdgpu.run(matrix.kernels("gfx1100", ((form, text),)), "k0", 1, 32, *(np.zeros((8, 32), np.uint32),) * 4)
    with pytest.raises(KernelError, match="20 of 32 are active"):
        Run(form, "gfx1100").execute(threads=20)


def test_a_source_that_is_no_register():
    word = int.from_bytes(forms("gfx942")[of("gfx942", "v_mfma_f32_32x32x2_f32")[0]][:8], "little")
    body = f".quad 0x{word & ~(0x1FF << 32) | 5 << 32:x}"
    arrays = [np.zeros(64, np.uint64) for _ in range(4)]
    with pytest.raises(KernelError, match="operand 5 is not a vector register"):
        amdgpu.run(instruction_kernels([body], "gfx942"), "k0", 1, 64, *arrays)
