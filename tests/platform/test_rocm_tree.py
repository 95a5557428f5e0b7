# SPDX-License-Identifier: MIT
"""The stand-in ROCm tree: programs that link AMD's libraries, version nodes, fat binaries, what is asked in vain."""

import ctypes
import ctypes.util
import json
import os
import shutil
import struct
import subprocess
import sys

import pytest
from amdgpu_code import compiled

from rocpy.cli.rocm_tree import lay_out
from rocpy.cli.run import not_supported, render

cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

KERNEL = """
extern "C" __attribute__((device)) int factor = 3;
extern "C" __attribute__((global)) void scale(const float *a, float *b, int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n) b[i] = a[i] * factor;
}
"""

# What hipcc makes of a kernel, a variable and a launch, by hand.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned x, y, z; } dim3;
void **__hipRegisterFatBinary(const void *);
void __hipUnregisterFatBinary(void **);
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned, void *, void *, void *,
                           void *, int *);
void __hipRegisterVar(void **, void *, char *, char *, int, size_t, int, int);
int __hipPushCallConfiguration(dim3, dim3, size_t, void *);
int __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, void **);
int hipLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int hipMalloc(void **, size_t), hipMemcpy(void *, const void *, size_t, int), hipDeviceSynchronize(void);
int hipMemcpyToSymbol(const void *, const void *, size_t, size_t, int), hipGetSymbolSize(size_t *, const void *);
int hipModuleGetGlobal(void **, size_t *, void *, const char *);
int hipOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
#define CHECK(call) do { int s = call; if (s) { printf("%s: %d\\n", #call, s); return 1; } } while (0)
static struct { unsigned magic, version; const void *binary; void *unused; } wrapper = {0x48495046, 1, 0, 0};
static int factor;
static void scale(const float *a, float *b, int n) {
  dim3 grid, block; size_t shared; void *stream, *args[] = {&a, &b, &n};
  __hipPopCallConfiguration(&grid, &block, &shared, &stream);
  int status = hipLaunchKernel((const void *)scale, grid, block, args, shared, stream);
  if (status) { printf("launch: %d\\n", status); exit(1); }
}
int main(int argc, char **argv) {
  static char image[1 << 20];
  FILE *file = fopen(argv[1], "rb");
  fread(image, 1, sizeof image, file);
  wrapper.binary = image;
  void **handle = __hipRegisterFatBinary(&wrapper);
  __hipRegisterFunction(handle, (const void *)scale, "scale", "scale", -1, 0, 0, 0, 0, 0);
  __hipRegisterVar(handle, &factor, "factor", "factor", 0, sizeof factor, 0, 0);
  float x[100], y[100], *a, *b;
  for (int i = 0; i < 100; ++i) x[i] = i;
  CHECK(hipMalloc((void **)&a, sizeof x));
  CHECK(hipMalloc((void **)&b, sizeof x));
  CHECK(hipMemcpy(a, x, sizeof x, 1));
  int blocks = 0, five = 5; size_t bytes = 0;
  for (int round = 0; round < 2; ++round) {
    dim3 grid = {2, 1, 1}, block = {64, 1, 1};
    if (!__hipPushCallConfiguration(grid, block, 0, 0)) scale(a, b, 100);
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(y, b, sizeof y, 2));
    printf("%g ", y[99]);
    CHECK(hipGetSymbolSize(&bytes, &factor));
    CHECK(hipMemcpyToSymbol(&factor, &five, sizeof five, 0, 1));
  }
  CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)scale, 64, 0));
  printf("%zu %d\\n", bytes, blocks > 0);
  __hipUnregisterFatBinary(handle);
  return 0;
}
"""

MULTIPLICATION = """
#include <stdio.h>
int hipInit(unsigned), hipDeviceSynchronize(void), hipMalloc(void **, size_t);
int hipMemcpy(void *, const void *, size_t, int);
int hipRuntimeGetVersion(int *), hipDeviceGetAttribute(int *, int, int), hipDeviceGetName(char *, int, int);
int hipblasLtCreate(void **), hipblasLtMatmulDescCreate(void **, int, int);
int hipblasLtMatrixLayoutCreate(void **, int, unsigned long, unsigned long, long);
int hipblasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *,
                    const void *, void *, void *, void *, const void *, void *, size_t, void *);
int rocblas_create_handle(void **), rocblas_sgemm(void *);
int main(void) {
  void *handle, *desc, *layout, *rocblas, *d[3];
  float x[4] = {1, 2, 3, 4}, y[4] = {0}, one = 1, zero = 0;
  char name[256];
  int version;
  int status = hipInit(0) | hipRuntimeGetVersion(&version) | hipblasLtCreate(&handle) | rocblas_create_handle(&rocblas);
  for (int i = 0; i < 3; ++i) status |= hipMalloc(&d[i], sizeof x) | hipMemcpy(d[i], x, sizeof x, 1);
  status |= hipblasLtMatmulDescCreate(&desc, 2, 0) | hipblasLtMatrixLayoutCreate(&layout, 0, 2, 2, 2);
  status |= hipblasLtMatmul(handle, desc, &one, d[0], layout, d[1], layout, &zero, d[2], layout, d[2], layout, 0, 0, 0,
                            0);
  status |= hipDeviceSynchronize() | hipMemcpy(y, d[2], sizeof y, 2) | hipDeviceGetName(name, 256, 0);
  printf("%d %d %g %g %g %g %d %s\\n", status, version / 100000, y[0], y[1], y[2], y[3],
         rocblas_sgemm(rocblas) + rocblas_sgemm(rocblas), name);
  return 0;
}
"""


def built(folder, text, tree, *libraries):
    (folder / "program.c").write_text(text)
    names = [f"-l{name}" for name in libraries]
    command = ["cc", "-w", "-o", "program", "program.c", f"-L{tree}/lib", f"-Wl,-rpath-link,{tree}/lib", *names]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return str(folder / "program")


def run(*words, **environ):
    return subprocess.run(
        [sys.executable, "-m", "rocpy", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "ROCPY_NUM_THREADS": "1", **environ},
    )


def needed(program):
    listed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    return {line.split("[")[1].rstrip("]") for line in listed.splitlines() if "(NEEDED)" in line}


@cc
@pytest.mark.parametrize(("release", "hip", "blas"), [("6.4", 6, 0), ("7.0", 7, 1), ("7.2", 7, 1)])
def test_a_c_program_starts_and_multiplies(tmp_path, release, hip, blas):
    lay_out(tmp_path / "rocm", release)
    program = built(tmp_path, MULTIPLICATION, tmp_path / "rocm", "amdhip64", "hipblaslt", "rocblas")
    assert needed(program) >= {f"libamdhip64.so.{hip}", f"libhipblaslt.so.{blas}", f"librocblas.so.{hip - 2}"}
    done = run("--release", release, "--report", "--", program, ROCPY_HOST_ARCH="gfx942")
    assert done.returncode == 0, done.stderr
    status, version, *numbers = done.stdout.split(maxsplit=7)
    assert status == "0"
    assert version == release.replace(".", "0")
    assert numbers[:5] == ["7", "10", "15", "22", "4"]  # twice rocblas_status_not_implemented
    assert numbers[5].startswith("AMD Instinct MI300X")
    assert "rocblas_sgemm" in done.stderr
    assert done.stderr.rstrip().endswith(" 2")


@cc
@pytest.mark.parametrize(("release", "last"), [("6.4", "hip_6.4"), ("7.0", "hip_6.5"), ("7.2", "hip_7.2")])
def test_version_nodes(tmp_path, release, last):
    lay_out(tmp_path, release)
    path = tmp_path / "lib" / "libamdhip64.so"
    symbols = subprocess.run(["nm", "-D", "--with-symbol-versions", path], capture_output=True, text=True, check=True)
    defined = {line.split()[-1].replace("@@", "@") for line in symbols.stdout.splitlines() if " T " in line}
    assert defined >= {
        "hipMalloc@hip_4.2",
        "hipGraphCreate@hip_4.3",
        "hipPointerGetAttribute@hip_5.0",
        "hipGetDevicePropertiesR0600@hip_6.0",
        "hipGetFuncBySymbol@hip_6.2",
    }
    nodes = {name.split("@")[1] for name in defined}
    assert all("@" in name for name in defined)
    assert max(nodes, key=lambda node: [int(part) for part in node[4:].split(".")]) == last
    assert not any(name.startswith("rocpy") for name in defined)


def bundle(code, arch):
    target = f"hipv4-amdgcn-amd-amdhsa--{arch}".encode()
    host = b"host-x86_64-unknown-linux-gnu-"
    entries = b"".join(
        struct.pack("<QQQ", offset, size, len(name)) + name
        for name, offset, size in ((host, 4096, 0), (target, 4096, len(code)))
    )
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 2) + entries
    return head.ljust(4096, b"\0") + code


def compressed(plain):
    library = ctypes.util.find_library("zstd")
    if library is None:
        pytest.skip("needs the zstd library")
    zstd = ctypes.CDLL(library)
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    made = ctypes.create_string_buffer(len(plain) + 4096)
    size = zstd.ZSTD_compress(made, ctypes.c_size_t(len(made)), plain, ctypes.c_size_t(len(plain)), 3)
    return struct.pack("<4sHHIIQ", b"CCOB", 2, 1, 24 + size, len(plain), 0) + made.raw[:size]


@cc
@pytest.mark.parametrize("form", [lambda plain: plain, compressed], ids=["plain", "compressed"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_fat_binary(tmp_path, arch, form):
    lay_out(tmp_path / "rocm", "7.2")
    program = built(tmp_path, PROGRAM, tmp_path / "rocm", "amdhip64")
    (tmp_path / "image").write_bytes(form(bundle(compiled(KERNEL, arch), arch)))
    done = run("--", program, str(tmp_path / "image"), ROCPY_HOST_ARCH=arch)
    assert done.stdout.split() == ["297", "495", "4", "1"], done.stdout + done.stderr
    other = run("--", program, str(tmp_path / "image"), ROCPY_HOST_ARCH="gfx90a")
    assert "launch: 209" in other.stdout
    assert (
        f"no code for gfx90a; its targets are host-x86_64-unknown-linux-gnu- hipv4-amdgcn-amd-amdhsa--{arch}"
        in other.stderr
    )


@pytest.mark.parametrize(
    ("arch", "warp", "name", "xccs", "wall_clock_khz"),
    [
        ("gfx90a", 64, "gfx90a:sramecc+:xnack-", 1, 25000),
        ("gfx942", 64, "gfx942:sramecc+:xnack-", 8, 100000),
        ("gfx1201", 32, "gfx1201", 1, 100000),
    ],
)
def test_a_device_answers_as_a_card(arch, warp, name, xccs, wall_clock_khz):
    code = """if True:
        import ctypes
        import rocpy
        from rocpy.cli.rocm_tree import libraries
        device, hip = rocpy.Device(0), ctypes.CDLL(str(libraries("7.2")["librocpy_host.so"]))
        def attribute(number):
            value = ctypes.c_int()
            assert hip.rocpy_host_hipDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
            return value.value
        print(device.properties["warp_size"], device.arch, attribute(10018), attribute(10017))
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "ROCPY_PLATFORM": "host", "ROCPY_HOST_ARCH": arch},
    )
    assert done.stdout.split() == [str(warp), name, str(xccs), str(wall_clock_khz)], done.stderr


def test_a_tree_is_laid_out_again_for_another_release(tmp_path):
    for release, soname in (("6.4", "libamdhip64.so.6"), ("7.0", "libamdhip64.so.7")):
        lay_out(tmp_path, release)
        assert [path.name for path in tmp_path.glob("lib/libamdhip64.so.*")] == [soname]
        assert (tmp_path / ".info" / "version").read_text() == f"{release}.0\n"


def test_wrong_usage():
    for words, message in (((), "name the program"), (("--", "no-such-program"), "there is no program")):
        done = run(*words)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_programs_exit_code_is_that_of_run():
    assert run("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    done = run("--report", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137
    assert "SIGKILL" in done.stderr
    assert "called no function" in done.stderr


def test_calls_of_processes_are_added():
    calls = not_supported("1 hipfft hipfftPlan1d 5\n2 hipfft hipfftPlan1d 1\n")
    assert render(calls).splitlines()[-1].split() == ["hipfft", "hipfftPlan1d", "6"]


def test_the_report_for_programs():
    calls = "import ctypes; print('said'); ctypes.CDLL('libhipfft.so.0').hipfftPlan1d(0, 0, 0, 0); raise SystemExit(3)"
    done = run("--report", "--json", "--", sys.executable, "-c", calls)
    assert done.returncode == 3
    assert json.loads(done.stdout) == {
        "exit_code": 3,
        "not_supported": [{"library": "hipfft", "function": "hipfftPlan1d", "calls": 1}],
    }
    assert done.stderr == "said\n"


def test_a_tree_for_programs(tmp_path):
    words = [sys.executable, "-m", "rocpy", "rocm-tree", str(tmp_path / "rocm"), "--release", "7.0", "--json"]
    document = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert document["release"] == "7.0"
    assert document["folder"] == document["variables"]["ROCM_PATH"] == str(tmp_path / "rocm")
    assert (tmp_path / "rocm" / "lib" / "libamdhip64.so").is_symlink()
