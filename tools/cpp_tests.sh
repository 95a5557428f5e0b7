#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds tests/cpp in build/cpp-KIND and runs it with ctest: KIND is plain, address (with undefined behaviour) or thread.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:?usage: cpp_tests.sh plain|address|thread [ctest options]}
shift
folder=build/cpp-$kind
sanitize=$kind
build_type=RelWithDebInfo
if [ "$kind" = plain ]; then
  sanitize=
  build_type=Release
fi

cmake -S tests/cpp -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE="$build_type" -DROCPY_SANITIZE="$sanitize" --log-level=WARNING
cmake --build "$folder" -- --quiet

# A report ends the test: it must not scroll by in a run that passes. The driver opens the platform by dlopen and unloads nothing at
# exit, so what the loader itself keeps is no leak.
export ASAN_OPTIONS=halt_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# At its end the thread sanitizer waits a second for late reports, in each of the hundreds of processes that some tests start.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=100:suppressions=$PWD/tests/cpp/thread_suppressions.txt
# The sanitizers' shadow memory does not fit the address space layout that newer kernels randomise most.
runner=()
if [ "$kind" != plain ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  runner=(setarch "$(uname -m)" -R)
fi
"${runner[@]}" ctest --test-dir "$folder" --output-on-failure --timeout 600 --parallel 2 "$@"
