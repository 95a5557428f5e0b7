# SPDX-License-Identifier: MIT
"""A library that is linked as a wheel's libraries are: what it needs is old, and exceptions pass through it."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

THROWER = """
#include <new>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" void thrower(int kind) {
  if (kind == 0) throw std::runtime_error("from another library");
  if (kind == 1) throw std::bad_alloc();
  throw 3;
}
std::string name_of(std::vector<int> &values) {
  values.push_back(7);
  return std::string(100, 'n');
}
"""
CATCHER = """
#include <dlfcn.h>
#include <sys/stat.h>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" __attribute__((visibility("default"))) int catcher(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto *thrower = reinterpret_cast<void (*)(int)>(dlsym(library, "thrower"));
  using Name = std::string(std::vector<int> &);
  auto *name_of = reinterpret_cast<Name *>(dlsym(library, "_Z7name_ofB5cxx11RSt6vectorIiSaIiEE"));
  int passed = 0;
  try { thrower(0); } catch (const std::bad_alloc &) {
  } catch (const std::exception &error) { passed += std::string(error.what()) == "from another library"; }
  try { thrower(1); } catch (const std::bad_alloc &) { passed += 2; }
  try { thrower(2); } catch (const std::exception &) {
  } catch (...) { passed += 4; }
  std::vector<int> values;
  if (name_of(values).size() == 100 && values[0] == 7) passed += 8;
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock<std::mutex> lock(mutex);
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  if (!changed.wait_until(lock, until, [] { return false; }) && std::chrono::steady_clock::now() >= until) passed += 16;
  struct stat found;
  if (stat("/", &found) == 0) passed += 32;
  std::exception_ptr kept;
  try { thrower(0); } catch (...) { kept = std::current_exception(); }
  try { std::rethrow_exception(kept); } catch (const std::runtime_error &) { passed += 64; }
  return passed * *std::make_shared<int>(1);
}
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)  # ziglang makes its stubs the first time
def test_exceptions_of_a_library_that_is_opened_pass(tmp_path, monkeypatch):
    if importlib.util.find_spec("ziglang") is None or shutil.which("g++") is None:
        pytest.skip("needs ziglang and g++")
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "wheels"))
    import toolchain

    made = toolchain.make_toolchain(platform.machine(), ROOT / "build" / "wheels-test")
    text = made.file.read_text()
    options = re.search(r'SHARED_LINKER_FLAGS_INIT "(.*)"', text)[1].split()
    libraries = re.search(r'CXX_STANDARD_LIBRARIES_INIT "(.*)"', text)[1].split()
    common = ["g++", "-shared", "-fPIC", "-O2", "-fvisibility=hidden"]
    for name, source in (("thrower", THROWER), ("catcher", CATCHER)):
        (tmp_path / f"{name}.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "thrower.cpp", "-o", "thrower.so"], cwd=tmp_path, check=True)
    subprocess.run([*common, *options, "catcher.cpp", "-o", "catcher.so", *libraries], cwd=tmp_path, check=True)
    program = "import ctypes; print(ctypes.CDLL('./catcher.so').catcher(b'./thrower.so'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert int(done.stdout) == 127
    needed = toolchain.output_of("readelf", "-V", tmp_path / "catcher.so")
    versions = {tuple(map(int, number.split("."))) for number in re.findall(r"GLIBC_([\d.]+)", needed)}
    assert versions
    assert max(versions) <= toolchain.GLIBC
