// SPDX-License-Identifier: MIT
// A code object for AMD GPUs made by hand: one kernel "k" around given instructions, which takes four pointers.
#pragma once

#include <elf.h>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

class CodeObjectBuilder {
 public:
  static constexpr size_t symbols = 0x100, strings = 0x140, hash = 0x150, dynamic = 0x170, descriptor = 0x1c0,
                          note = 0x200, text = 0x400;
  static constexpr uint32_t shared_bytes = 512, private_bytes = 64;

  static std::vector<uint8_t> build(unsigned machine, bool is_wave32, const std::vector<uint32_t> &code) {
    std::vector<uint8_t> file(text + 4 * code.size());
    header(&file, machine);
    put(&file, symbols + sizeof(Elf64_Sym), symbol());
    std::memcpy(file.data() + strings + 1, "k.kd", 5);
    put(&file, hash, std::vector<uint32_t>{1, 2, 1, 0, 0});
    put(&file, dynamic, std::vector<uint64_t>{DT_HASH, hash, DT_SYMTAB, symbols, DT_STRTAB, strings, DT_NULL, 0});
    // The kernel descriptor: sizes, the code's distance, and registers: s[0:1] point to the arguments.
    put(&file, descriptor, std::vector<uint32_t>{shared_bytes, private_bytes, 32, 0, text - descriptor});
    put(&file, descriptor + 56, static_cast<uint16_t>(1 << 3 | (is_wave32 ? 1 << 10 : 0)));
    const std::string metadata = metadata_of_kernel();
    put(&file, note, Elf64_Nhdr{7, static_cast<Elf64_Word>(metadata.size()), 32});
    std::memcpy(file.data() + note + sizeof(Elf64_Nhdr), "AMDGPU", 7);
    std::memcpy(file.data() + note + sizeof(Elf64_Nhdr) + 8, metadata.data(), metadata.size());
    std::memcpy(file.data() + text, code.data(), 4 * code.size());
    return file;
  }

 private:
  template <class T>
  static void put(std::vector<uint8_t> *file, size_t at, const T &value) {
    std::memcpy(file->data() + at, &value, sizeof value);
  }
  template <class T>
  static void put(std::vector<uint8_t> *file, size_t at, const std::vector<T> &values) {
    std::memcpy(file->data() + at, values.data(), values.size() * sizeof(T));
  }

  static void header(std::vector<uint8_t> *file, unsigned machine) {
    Elf64_Ehdr made{};
    std::memcpy(made.e_ident, ELFMAG, SELFMAG);
    made.e_ident[EI_CLASS] = ELFCLASS64;
    made.e_ident[EI_DATA] = ELFDATA2LSB;
    made.e_type = ET_DYN;
    made.e_machine = 224;
    made.e_flags = machine;
    made.e_phoff = sizeof made;
    made.e_phentsize = sizeof(Elf64_Phdr);
    made.e_phnum = 3;
    put(file, 0, made);
    segment(file, 0, PT_LOAD, 0, file->size());
    segment(file, 1, PT_DYNAMIC, dynamic, 64);
    segment(file, 2, PT_NOTE, note, text - note);
  }

  static void segment(std::vector<uint8_t> *file, size_t number, uint32_t type, size_t offset, size_t bytes) {
    Elf64_Phdr made{};
    made.p_type = type;
    made.p_offset = made.p_vaddr = offset;
    made.p_filesz = made.p_memsz = bytes;
    put(file, sizeof(Elf64_Ehdr) + number * sizeof made, made);
  }

  static Elf64_Sym symbol() {
    Elf64_Sym made{};
    made.st_name = 1;
    made.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    made.st_shndx = 1;
    made.st_value = descriptor;
    made.st_size = 64;
    return made;
  }

  // MessagePack of short texts, small numbers, lists and maps.
  static std::string word(const std::string &value) { return static_cast<char>(0xa0 | value.size()) + value; }
  static std::string number(int value) { return {static_cast<char>(value)}; }
  static std::string map(int entries) { return {static_cast<char>(0x80 | entries)}; }
  static std::string list(int entries) { return {static_cast<char>(0x90 | entries)}; }

  static std::string metadata_of_kernel() {
    std::string made = map(1) + word("amdhsa.kernels") + list(1) + map(3) + word(".symbol") + word("k.kd") +
                       word(".kernarg_segment_size") + number(32) + word(".args") + list(4);
    for (int k = 0; k < 4; ++k) {
      made += map(3) + word(".offset") + number(8 * k) + word(".size") + number(8) + word(".value_kind") +
              word("global_buffer");
    }
    return made;
  }
};
