// SPDX-License-Identifier: MIT
// Bundles: a table of targets with the offset of each one's code, plain or compressed by zstd as a whole.
#include "bundle.hpp"

#include "instruction.hpp"
#include "lazy.h"

#include <dlfcn.h>
#include <cstdint>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr char plain_magic[] = "__CLANG_OFFLOAD_BUNDLE__", compressed_magic[] = "CCOB";
constexpr size_t plain_magic_bytes = sizeof plain_magic - 1, compressed_magic_bytes = sizeof compressed_magic - 1;
constexpr size_t largest_bundle = size_t{1} << 32;

// Stops at the first byte that differs, and so does not read past a short image.
bool starts_with(const void *image, const char *magic) {
  for (const auto *bytes = static_cast<const char *>(image); *magic != '\0'; ++magic, ++bytes) {
    if (*bytes != *magic) {
      return false;
    }
  }
  return true;
}

template <class Number>
bool read(const char *data, size_t bytes, size_t offset, Number *number) {
  if (offset > bytes || bytes - offset < sizeof *number) {
    return false;
  }
  std::memcpy(number, data + offset, sizeof *number);
  return true;
}

// The system's zstd library, where there is one.
struct Zstd {
  size_t (*decompress)(void *, size_t, const void *, size_t) = nullptr;
  size_t (*frame_size)(const void *, size_t) = nullptr;
  unsigned (*is_error)(size_t) = nullptr;

  Zstd() {
    if (void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL)) {
      decompress = reinterpret_cast<decltype(decompress)>(dlsym(library, "ZSTD_decompress"));
      frame_size = reinterpret_cast<decltype(frame_size)>(dlsym(library, "ZSTD_findFrameCompressedSize"));
      is_error = reinterpret_cast<decltype(is_error)>(dlsym(library, "ZSTD_isError"));
    }
  }
  bool is_complete() const { return decompress != nullptr && frame_size != nullptr && is_error != nullptr; }
};

struct Header {
  uint16_t version = 0, method = 0;
  uint64_t plain_bytes = 0;
  size_t bytes = 0;  // of the header itself
};

bool read_header(const char *data, size_t readable, Header *header) {
  uint32_t short_size = 0;
  if (!read(data, readable, 4, &header->version) || !read(data, readable, 6, &header->method)) {
    return false;
  }
  switch (header->version) {
    case 1:
      header->bytes = 20;
      header->plain_bytes = read(data, readable, 8, &short_size) ? short_size : 0;
      break;
    case 2:
      header->bytes = 24;
      header->plain_bytes = read(data, readable, 12, &short_size) ? short_size : 0;
      break;
    case 3:
      header->bytes = 32;
      return read(data, readable, 16, &header->plain_bytes) && readable > header->bytes;
    default:
      return false;
  }
  return readable > header->bytes;
}

// An empty reason: `plain` holds the bundle.
std::string decompress(const char *data, size_t readable, std::vector<char> *plain) {
  constexpr uint16_t zstd_method = 1;
  Header header;
  if (!read_header(data, readable, &header) || header.plain_bytes == 0 || header.plain_bytes > largest_bundle) {
    return "its header cannot be read";
  }
  if (header.method != zstd_method) {
    return "it is compressed by another method than zstd; compile with --offload-compression-level or without "
           "--offload-compress";
  }
  static rocpy::Lazy<const Zstd> library;
  const Zstd &zstd = library.get();
  if (!zstd.is_complete()) {
    return "it is compressed, and there is no libzstd.so.1; install the system's zstd library";
  }
  const size_t compressed = zstd.frame_size(data + header.bytes, readable - header.bytes);
  if (zstd.is_error(compressed) != 0) {
    return "it is cut off";
  }
  plain->resize(header.plain_bytes);
  const size_t got = zstd.decompress(plain->data(), plain->size(), data + header.bytes, compressed);
  return zstd.is_error(got) != 0 || got != plain->size() ? "it cannot be decompressed" : "";
}

// Whether a target, such as hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+, is code for the device.
bool is_for(const std::string &target, const std::string &architecture) {
  const size_t start = target.find("gfx");
  if (target.compare(0, 3, "hip") != 0 || start == std::string::npos) {
    return false;
  }
  const size_t end = target.find(':', start);
  const std::string processor = target.substr(start, end == std::string::npos ? end : end - start);
  const std::string features = end == std::string::npos ? "" : target.substr(end);
  if (features.find("xnack+") != std::string::npos || features.find("sramecc-") != std::string::npos) {
    return false;
  }
  amdgpu::Architecture known;
  return architecture.empty() ? amdgpu::find_architecture(processor, &known) : processor == architecture;
}

}  // namespace

bool is_bundle(const void *image) { return starts_with(image, plain_magic) || starts_with(image, compressed_magic); }

Unbundled unbundle(const void *image, size_t readable, const std::string &architecture) {
  Unbundled result;
  const auto *data = static_cast<const char *>(image);
  if (starts_with(image, compressed_magic)) {
    result.reason = readable < compressed_magic_bytes ? "it is cut off" : decompress(data, readable, &result.plain);
    if (!result.reason.empty()) {
      return result;
    }
    data = result.plain.data();
    readable = result.plain.size();
  }
  uint64_t count = 0;
  size_t at = plain_magic_bytes;
  if (readable < at || !starts_with(data, plain_magic) || !read(data, readable, at, &count)) {
    result.reason = "it holds no table of targets";
    return result;
  }
  at += sizeof count;
  std::string targets;
  for (uint64_t entry = 0; entry < count; ++entry) {
    uint64_t offset = 0, bytes = 0, length = 0;
    if (!read(data, readable, at, &offset) || !read(data, readable, at + 8, &bytes) ||
        !read(data, readable, at + 16, &length) || length > readable - at - 24) {
      result.reason = "its table of targets is cut off";
      return result;
    }
    const std::string target(data + at + 24, length);
    at += 24 + length;
    targets += " " + target;
    if (bytes != 0 && is_for(target, architecture)) {
      if (offset > readable || bytes > readable - offset) {
        result.reason = "the code for " + target + " is cut off";
        return result;
      }
      result.code = data + offset;
      result.bytes = bytes;
      return result;
    }
  }
  result.reason = "it has no code for " + (architecture.empty() ? "a target that is emulated" : architecture) +
                  "; its targets are" + targets;
  return result;
}

}  // namespace rocpy_host
