// SPDX-License-Identifier: MIT
// The metadata of a code object: the part of MessagePack that describes kernels and their arguments.
#include "code_object.hpp"

#include <cstring>

namespace rocpy_host::amdgpu {

namespace {

struct Value {
  enum class Kind { none, number, text, list, map } kind = Kind::none;
  uint64_t number = 0;
  std::string text;
  std::vector<Value> items;  // of a map: key, value, key, value ...

  const Value *find(const char *key) const {
    for (size_t k = 0; kind == Kind::map && k + 1 < items.size(); k += 2) {
      if (items[k].text == key) {
        return &items[k + 1];
      }
    }
    return nullptr;
  }
  uint32_t number_at(const char *key) const {
    const Value *match = find(key);
    return match != nullptr ? static_cast<uint32_t>(match->number) : 0;
  }
  std::string text_at(const char *key) const {
    const Value *match = find(key);
    return match != nullptr ? match->text : std::string();
  }
};

class Reader {
 public:
  Reader(const uint8_t *data, size_t bytes) : at_(data), end_(data + bytes) {}

  Value read(int depth) {
    Value node;
    const uint64_t tag = take(1);
    if (!ok_ || depth > 16) {
      ok_ = false;
      return node;
    }
    if (tag < 0x80 || tag >= 0xe0) {
      number(&node, tag < 0x80 ? tag : tag | ~0xffull);
    } else if (tag < 0x90) {
      items(&node, Value::Kind::map, 2 * (tag & 15), depth);
    } else if (tag < 0xa0) {
      items(&node, Value::Kind::list, tag & 15, depth);
    } else if (tag < 0xc0) {
      text(&node, tag & 31);
    } else {
      tagged(&node, tag, depth);
    }
    return node;
  }
  bool ok() const { return ok_; }

 private:
  uint64_t take(unsigned bytes) {
    uint64_t value = 0;
    if (static_cast<size_t>(end_ - at_) < bytes) {
      ok_ = false;
      return 0;
    }
    for (unsigned k = 0; k < bytes; ++k) {
      value = value << 8 | *at_++;
    }
    return value;
  }

  void number(Value *node, uint64_t value) {
    node->kind = Value::Kind::number;
    node->number = value;
  }

  void text(Value *node, uint64_t length) {
    if (static_cast<uint64_t>(end_ - at_) < length) {
      ok_ = false;
      return;
    }
    node->kind = Value::Kind::text;
    node->text.assign(reinterpret_cast<const char *>(at_), length);
    at_ += length;
  }

  void items(Value *node, Value::Kind kind, uint64_t count, int depth) {
    node->kind = kind;
    for (uint64_t k = 0; k < count && ok_; ++k) {
      node->items.push_back(read(depth + 1));
    }
  }

  void tagged(Value *node, uint64_t tag, int depth) {
    switch (tag) {
      case 0xc0:
        return;
      case 0xc2:
      case 0xc3:
        return number(node, tag & 1);
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return text(node, take(1u << (tag - 0xc4)));
      case 0xca:
      case 0xcb:
        return number(node, take(tag == 0xca ? 4 : 8));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return number(node, take(1u << (tag - 0xcc)));
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3:
        return number(node, take(1u << (tag - 0xd0)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return text(node, take(1u << (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
        return items(node, Value::Kind::list, take(tag == 0xdc ? 2 : 4), depth);
      case 0xde:
      case 0xdf:
        return items(node, Value::Kind::map, 2 * take(tag == 0xde ? 2 : 4), depth);
      default:
        ok_ = false;
    }
  }

  const uint8_t *at_, *end_;
  bool ok_ = true;
};

}  // namespace

void read_metadata(const uint8_t *data, size_t bytes, std::map<std::string, Kernel> *kernels) {
  Reader reader(data, bytes);
  const Value root = reader.read(0);
  const Value *list = root.find("amdhsa.kernels");
  if (!reader.ok() || list == nullptr) {
    return;
  }
  for (const Value &entry : list->items) {
    std::string symbol = entry.text_at(".symbol");
    if (symbol.size() > 3 && symbol.compare(symbol.size() - 3, 3, ".kd") == 0) {
      symbol.resize(symbol.size() - 3);
    }
    const auto match = kernels->find(symbol);
    if (match == kernels->end()) {
      continue;
    }
    Kernel &kernel = match->second;
    kernel.has_metadata = true;
    kernel.has_uniform_blocks = entry.number_at(".uniform_work_group_size") == 1;
    if (const uint32_t bound = entry.number_at(".max_flat_workgroup_size")) {
      kernel.most_threads = std::min(kernel.most_threads, bound);
    }
    const uint32_t told = entry.number_at(".kernarg_segment_size");
    if (told <= 1u << 20) {
      kernel.argument_bytes = std::max(kernel.argument_bytes, told);
    }
    if (const Value *arguments = entry.find(".args")) {
      for (const Value &argument : arguments->items) {
        Argument parsed;
        parsed.offset = argument.number_at(".offset");
        parsed.bytes = argument.number_at(".size");
        parsed.kind = argument.text_at(".value_kind");
        if (parsed.offset <= kernel.argument_bytes && parsed.bytes <= kernel.argument_bytes - parsed.offset) {
          kernel.arguments.push_back(parsed);
        }
      }
    }
  }
}

}  // namespace rocpy_host::amdgpu
