#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the Python tests that the arguments name (those of products and communicators if they name none) on csrc built under the address and
# undefined-behaviour sanitizers: the libraries of `make cpp-address` in a copy of the package that is installed, whose extension modules stay.
set -euo pipefail
cd "$(dirname "$0")/../.."

libraries=build/cpp-address
cmake -S tests/cpp -B "$libraries" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DROCPY_SANITIZE=address --log-level=WARNING
cmake --build "$libraries" --target facade_links rocpy_core -- --quiet

folder=$PWD/build/python-address
python=$folder/environment/bin/python
packages=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
rm -rf "$folder"
python -m venv --without-pip "$folder/environment"
# The copy comes before the packages of the environment that runs this, whose own .pth files, an editable install's too, are not read again.
printf '%s\n' "$folder/package" "$packages" >"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/packages.pth"
mkdir "$folder/package"
cp -r rocpy rocpy_torch_backend "$folder/package/"
cp -r "$packages/rocpy/." "$folder/package/rocpy/"
cp "$libraries"/rocpy/_host/lib/*.so "$folder/package/rocpy/_host/lib/"
cp "$libraries/core/librocpy_core.so" "$folder/package/rocpy/_lib/"

# The interpreter is no program of the sanitizer's: its library comes first, and that of C++ with it, whose exceptions it watches. Python and
# what it loads keep memory until they end, which is no leak of ours. Objects come from malloc, so that each has bounds of its own.
compiler=${CXX:-g++}
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export PYTHONMALLOC=malloc
# Programs that tests start must not take the package of the folder that they are started in either.
export PYTHONSAFEPATH=1
[[ " $* " == *" tests/"* ]] || set -- tests/blaslt tests/rccl "$@"
"$python" -P -m pytest -q -m "not slow" -p no:cacheprovider -o timeout=900 --without-torch --without-jax "$@"
